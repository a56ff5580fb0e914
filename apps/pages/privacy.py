"""The privacy section of a report: what was spent, what the claim covers and what it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.pages.clients.chosen import first_of
from trellis.apps.pages.clients.spread import in_words
from trellis.apps.pages.page import Block, Facts, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import number
from trellis.privacy.accounting.series import releases

_TERMS = {
    "secure_aggregation": "Secure aggregation",
    "claim": "What is claimed",
    "neighbouring": "Neighbouring data",
    "adversary": "Against whom",
    "trusted": "What is trusted",
    "not_covered": "Not covered",
    "enrolment": "What enrolment tells",
}
_MODES = {
    "dp": "Noise as this software stands behind it (privacy = dp).",
    "paper": "Noise as the article prescribes it (privacy = paper).",
}
_PAPER = (
    "This mode reproduces the article, gaps in its proof included. The numbers below are the "
    "article's accounting, not a guarantee: do not release real data under it. Use privacy = dp."
)
_NONE = "Nothing was noised, and no privacy is claimed for this run."
_EXACT = (
    "The server sees every reply exactly as the client sent it, in every round, and may learn from "
    "it about single records."
)
_NOT_NOISED = "As the article has it (privacy = paper): nothing was noised."


def mode(result: RunResult) -> str:
    """Return the run's privacy: ``none``, ``paper`` or ``dp``."""
    return str(result.ledger.get("mode") or result.config.get("privacy") or "none")


def spent(result: RunResult) -> str:
    """Return the privacy spent in a few words, for headers and tables."""
    kind = mode(result)
    if kind == "none":
        return "none: not noised"
    epsilon = result.ledger.get("epsilon")
    if epsilon is None:
        held = [client.get("epsilon") for client in _clients(result)]
        epsilon = max((value for value in held if value is not None), default=None)
    if kind == "paper" and result.ledger and not _noised(result):
        return "none: not noised (the paper's mode)"
    label = "the paper's claim" if kind == "paper" else kind
    if epsilon is not None and result.ledger.get("simulated"):
        label += ", simulated"
    return label if epsilon is None else f"ε = {number(float(epsilon))} ({label})"


def privacy_section(result: RunResult) -> Section:
    """Return the section on the privacy that was spent."""
    title = "What privacy was spent"
    kind = mode(result)
    ledger = result.ledger
    terms: dict[str, object] = {
        text: ledger[key] for key, text in _TERMS.items() if ledger.get(key, "-") not in ("", "-")
    }
    if kind == "none":
        # What the server learns differs between methods: the ledger's own statement comes first.
        told = Facts(terms) if terms else Paragraph(_EXACT)
        return Section(title, [Paragraph(_NONE), told])
    if kind == "paper" and ledger and not _noised(result):
        return Section(title, [Notice(_NOT_NOISED), Facts(terms)])
    blocks: list[Block] = [Paragraph(_MODES.get(kind, f"Privacy mode: {kind}."))]
    if kind == "paper":
        blocks.append(Notice(_PAPER))
    if not ledger:
        blocks.append(
            Notice(
                f"The settings ask for privacy = {kind}, but this run recorded no ledger: what was "
                "spent is not known, and no claim can be made."
            )
        )
        return Section(title, blocks)
    totals: dict[str, object] = {
        name: float(ledger[name]) for name in ("epsilon", "delta") if ledger.get(name) is not None
    }
    blocks.append(Facts({**totals, **terms}))
    clients, cut = _most_spent(result)
    rows = [row for client in clients for row in _client_rows(client)]
    if rows:
        headers = [
            "client",
            "epsilon",
            "delta",
            "mechanism",
            "what was noised",
            "releases",
            "sigma",
        ]
        caption = (
            "Spent by each client. sigma is the standard deviation of the noise, sensitivity how "
            f"far the noised quantity moves between neighbouring data; {cut}run.json has every "
            "release."
        )
        blocks.append(Table([*headers, "sensitivity"], rows, caption))
    blocks += _opinions(result)
    return Section(title, blocks)


def _opinions(result: RunResult) -> list[Block]:
    """Return the totals by other accountants, where the ledger has them."""
    names = {"epsilon": "epsilon", "epsilon_pld": "by PLD", "epsilon_rdp": "by RDP", "rho": "zCDP"}
    clients, cut = _most_spent(result)
    rows = [
        [str(client.get("name", "?")), *(client.get(name) for name in names)]
        for client in clients
        if client.get("rho") is not None
    ]
    if not rows:
        return []
    caption = (
        "The same releases by other accountants, at the same delta: privacy loss distributions "
        "(PLD) and Renyi (RDP) of dp-accounting, for those that spent most, and the sum "
        f"of rho in zero-concentrated terms. {cut.capitalize()}"
    ).strip()
    return [Table(["client", *names.values()], rows, caption)]


def _most_spent(result: RunResult) -> tuple[list[Mapping[str, Any]], str]:
    """Return the clients of the tables, and the words for it where they are not all."""
    clients = _clients(result)
    epsilons = [client.get("epsilon") for client in clients]
    rows = first_of([np.nan if value is None else value for value in epsilons])
    if len(rows) == len(clients):
        return list(clients), ""
    told = f"the {len(rows)} of {len(clients):,} clients that spent most; epsilon over all is "
    return [clients[k] for k in rows.tolist()], f"{told}{in_words(epsilons)}. "


def _noised(result: RunResult) -> bool:
    """Return whether the ledger has anything that was spent."""
    held = (result.ledger, *_clients(result))
    return any(entry.get("epsilon") or entry.get("events") for entry in held)


def _clients(result: RunResult) -> Sequence[Mapping[str, Any]]:
    clients: Sequence[Mapping[str, Any]] = result.ledger.get("clients") or ()
    return clients


def _client_rows(client: Mapping[str, Any]) -> list[list[object]]:
    """Return one row for every kind of release a client made: rounds can be many, kinds are few."""
    name = str(client.get("name", "?"))
    totals = [client.get("epsilon"), client.get("delta")]
    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for event in client.get("events") or ():
        kind = str(event.get("mechanism", "?")), str(event.get("what", ""))
        kinds.setdefault(kind, []).append(event)
    if not kinds:
        return [[name, *totals, None, None, 0, None, None]]
    return [
        [
            name,
            *totals,
            *kind,
            releases(events),
            _range(events, "sigma"),
            _range(events, "sensitivity"),
        ]
        for kind, events in kinds.items()
    ]


def _range(events: Sequence[Mapping[str, Any]], key: str) -> object:
    """Return the one value all events share, or the smallest and the largest."""
    values = [float(event[key]) for event in events if event.get(key) is not None]
    if not values:
        return None
    low, high = min(values), max(values)
    return low if low == high else f"{number(low)} to {number(high)}"
