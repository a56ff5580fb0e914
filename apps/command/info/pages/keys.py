"""Keys of node configs and policies, and of a Flower run config."""

from __future__ import annotations

import tomllib
from pathlib import Path

from trellis.apps.command.info.described import typed
from trellis.privacy.device.meanings import INTERNAL, NODE, POLICY, may_be
from trellis.privacy.device.policy_file import EXAMPLE

from .markdown import code, sentence, table

_PROJECT = Path(__file__).resolve().parents[4] / "pyproject.toml"

# The keys of a run config beside those of the studies; defaults are in pyproject.toml.
RUN = {
    "study": "which study runs",
    "seed": "the same seed gives the same result, to the last bit",
    "out": "absolute path of the folder for the result; empty is one below `~/.trellis/runs`",
    "resume": "go on with the run in `out`",
    "force": "delete the run that `out` holds",
    "report": "write `report.html`",
    "data": "where the clients' files came from, for the record; devices read their own",
    "devices": "devices that are asked, by name with commas between; empty is all that connect",
    "chosen": "which settings were chosen for the data, in words; for the report's notes",
    "server": "which server of a graph of SuperLinks this is, from 0; -1 where there is one",
    "server-folder": "absolute path of the folder with this server's identity and the table of all",
    "graph-run": "name of the run, the same at all servers of the graph",
    "clients-here": "how many clients this server waits for; 0 is its share of all",
    "max-staleness": "how many rounds old a neighbour's letter may be; 0 keeps rounds in step",
    "server-timeout": "seconds to wait for a neighbour before it counts as gone",
}


def node_page() -> str:
    """Return the page of node configs and policies."""
    return "\n\n".join(
        [
            "# Node config and policy",
            "A device takes its data and its rules from its own node config, never from the "
            "server. A key that is unknown, of the wrong kind or given twice stops it (E1); its "
            "log names the key. How they are used: [the owner's policy](page:policy).",
            "## Who and where a device is { #node }",
            "In the node config only (`flower-supernode --node-config 'KEY=VALUE ...'`, or "
            "`device.toml` of a federation's folder).",
            table(
                ("key", "means", "may be"),
                [(code(k), sentence(m.text), may_be(k)) for k, m in NODE.items()],
            ),
            "## What its owner allows { #policy }",
            "In a policy file, which `policy` names, or one by one in the node config. *With a "
            "file* is what holds where a policy file leaves the key out, *without* where there is "
            "neither a file nor a budget.",
            table(
                ("key", "allows", "may be", "with a file", "without"),
                [
                    (code(k), sentence(m.text), may_be(k), m.in_file, m.without)
                    for k, m in POLICY.items()
                ],
            ),
            "`trellis device policy --example FILE` writes this example, `trellis device policy "
            "FILE` says a file in words:",
            f"```toml\n{EXAMPLE}```",
            "## Not for owners { #internal }",
            "Written by Trellis itself, or by a simulation:",
            table(("key", "tells"), [(code(k), sentence(m.text)) for k, m in INTERNAL.items()]),
        ]
    )


def run_page() -> str:
    """Return the page of a Flower run config."""
    config = tomllib.loads(_PROJECT.read_text())["tool"]["flwr"]["app"]["config"]
    rows = [
        (code(key), sentence(RUN[key]), code(typed(default)))
        for key, default in config.items()
        if not isinstance(default, dict)
    ]
    return "\n\n".join(
        [
            "# Run config",
            "What `flwr run . --run-config 'KEY=VALUE ...'` takes; `trellis run` and `trellis "
            "deploy run` write it themselves. Settings of a study stand under its name, as in "
            "`consensus-graph.rho=0.5`: [settings](settings/index.md); in the study's own app "
            "(`flwr run apps/consensus_graph`) by themselves. Texts are in double quotes.",
            table(("key", "means", "default"), rows),
        ]
    )
