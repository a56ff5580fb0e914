"""What every key of a node config means, for people; `policy_file` says what each may be.

Not in the bundle that devices get: its words are for the reference, and a test keeps its keys equal
to those that `policy_file` takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .policy_file import NODE_KEYS


@dataclass(frozen=True)
class Meaning:
    """What a key means.

    Attributes
    ----------
    text : what it allows, or tells
    in_file : what holds where a policy file, or a budget, leaves it out
    without : what holds where there is neither
    """

    text: str
    in_file: str = ""
    without: str = ""


POLICY: dict[str, Meaning] = {
    "max-epsilon": Meaning(
        "all that may ever be released about this data, over all runs", "no limit", "no limit"
    ),
    "run-epsilon": Meaning("what one run may add to that", "no limit", "no limit"),
    "delta": Meaning("where both are counted", "1e-5", "1e-5"),
    "require-privacy": Meaning('true is the same as `privacy = ["dp"]`', "true", "false"),
    "studies": Meaning("studies this device takes part in", "any", "any"),
    "methods": Meaning("methods this device takes part in", "any", "any"),
    "privacy": Meaning("modes of a run this device takes part in", "dp", "all"),
    "clear-updates": Meaning(
        "updates that are neither masked by secure aggregation nor counted; with `privacy=none` "
        "also scores of held-out records, and means and deviations of columns",
        "false",
        "true",
    ),
    "share-labels": Meaning(
        "telling the labels of graphs, where a run asks for them", "false", "true"
    ),
    "names": Meaning(
        "classes that a run names as `package.module.Class`, to be run here", "none", "none"
    ),
    "fewest-clients": Meaning("the smallest number of clients in a secure sum", "3", "3"),
    "fewest-share": Meaning(
        "the smallest share of holders that may open a client's secret", "2/3", "2/3"
    ),
    "count-noise-of": Meaning(
        "whose noise in a noisy sum it counts on beside its own: `nobody`'s, that of clients with "
        "`signed` keys in its table, or of `anyone` the server names",
        "signed",
        "signed",
    ),
    "colluding": Meaning(
        "the share of a sum's clients that it takes for the server's, at least",
        "what the run says",
        "what the run says",
    ),
    "signing-key": Meaning("file with this device's own key", "unsigned", "unsigned"),
    "trusted-keys": Meaning("file with the table of its peers' keys", "unsigned", "unsigned"),
    "most-steps": Meaning(
        "the largest of any whole number among a run's settings", "100000", "100000"
    ),
    "most-megabytes": Meaning("the size of one message", "1000", "1000"),
    "most-seconds": Meaning("how long one message may take", "3600", "3600"),
}
NODE: dict[str, Meaning] = {
    "data-path": Meaning("this device's file, an absolute path"),
    "state-path": Meaning(
        "folder for its secret, ledger, log and results; `.NAME-trellis` beside the data otherwise"
    ),
    "policy": Meaning("file with all the owner allows, an absolute path"),
    "name": Meaning("what this device is called; the stem of its file otherwise"),
    "server-name": Meaning("the owner's word for the server, for the device's own log and pages"),
    "partition-id": Meaning("its place in the order of clients; by name otherwise"),
    "server": Meaning("which server it belongs to, from 0; studies with several servers"),
    "cluster": Meaning("which cluster it belongs to, from 0; cluster-admm"),
}
# Written by Trellis or by Flower's simulation, and by nobody else.
INTERNAL: dict[str, Meaning] = {
    "policy-file": Meaning("where the policy was read from"),
    "num-partitions": Meaning("how many nodes a simulation has"),
    "simulation": Meaning("that the node is simulated: nothing on it is private"),
    "bridge": Meaning("that the node is a bridge between servers, and of which"),
    "spool": Meaning("folder with letters between servers"),
}


def may_be(key: str) -> str:
    """Return what a key may be, in words: what its check says to values that are wrong."""
    check = NODE_KEYS[key]
    # The last one that it refuses tells most: not a number, below all, an empty list.
    problems = [problem for value in (object(), -5.0, []) if (problem := check(value))]
    first, *others = dict.fromkeys(problems)
    told = next((other for other in others if "a number" in first or "list" in other), first)
    return told.removeprefix("must be ").removeprefix("must ")
