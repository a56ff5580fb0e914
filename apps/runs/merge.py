"""What the servers of a graph left, each in a folder of its own, as one result.

No server has all of it, and none needs to: any of the folders, in any order, can be gathered, and
what the others have stays unknown. The outcome is what logical servers in one process would have
left, but for what only they can know, such as how models differed in every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from trellis.apps.common.evaluation.scores import gather, numbers, tables_of
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError

from .arrays import Part, client_order, disagreement, gathered_arrays, gathered_links
from .fold import fold, fold_ledgers, fold_rounds

_WORST_FIRST = ("failed", "interrupted", "stopped", "running", "completed")


def merge(folders: Sequence[Path]) -> RunResult:
    """Return one result of the folders that servers of one run left.

    Raises
    ------
    ConfigError
        Where folders are not of one run, naming folder and key.
    FileNotFoundError
        Where a folder holds no run.
    """
    parts = sorted((_read(folder) for folder in folders), key=lambda part: part.server)
    if not parts:
        raise ConfigError("there is nothing to gather: name the folders of the servers")
    first = parts[0]
    for part in parts[1:]:
        _refuse_another_run(part, first)
    for before, part in pairwise(parts):
        if before.server == part.server:
            raise ConfigError(
                f"{part.folder}: network.server: {part.name} is in {before.folder} too; give the "
                "folder of every server once"
            )
    learned = [part for part in parts if part.has_model]
    metrics = fold_rounds([part.result.metrics for part in parts])
    result = RunResult(
        study=first.result.study,
        seed=first.result.seed,
        engine=_shared([part.result.engine for part in parts], "deployment"),
        config=dict(first.result.config),
        data=_shared([part.result.data for part in parts], ""),
        metrics=metrics,
        clients=[learned[n].result.clients[k] for n, k in client_order(learned)],
        variables=next((p.result.variables for p in parts if p.result.variables), []),
        ledger=fold_ledgers({part.name: part.result.ledger for part in parts}),
        headline=fold([part.result.headline for part in parts]),
        bytes_up=sum(part.result.bytes_up for part in parts),
        bytes_down=sum(part.result.bytes_down for part in parts),
        seconds=max(part.result.seconds for part in parts),
        started=min(part.result.started for part in parts),
        status=min((part.result.status for part in parts), key=_WORST_FIRST.index),
        settled=_settled([part.result.settled for part in parts]),
        versions=dict(first.result.versions),
        network=_network(parts),
        scores=gather({n: t for part in parts for n, t in tables_of(part.result.scores).items()}),
    )
    left_out: list[str] = []
    if learned:
        result.arrays, left_out = gathered_arrays(learned)
        if result.arrays["models"].ndim == 2 and len(learned) > 1:
            result.headline["disagreement"] = disagreement(result.arrays)
    result.arrays |= gathered_links(parts, [row["round"] for row in metrics])
    result.headline |= numbers(result.scores)
    if metrics:
        result.headline["rounds"] = float(len(metrics))
    result.notes = [*_own_notes(parts, left_out), *_their_notes(parts)]
    return result


def _read(folder: Path) -> Part:
    """Return what one server left; refuse a folder that is no server's."""
    result = RunResult.load(folder)
    network = result.network
    if "merged" in network:
        raise ConfigError(
            f"{folder}: network.merged: this is gathered already; give the folders it is made of"
        )
    if "server" not in network:
        raise ConfigError(
            f"{folder}: network: run.json has none, so this is no server of a graph of SuperLinks; "
            "a run with all servers in one process needs no gathering"
        )
    number = int(network["server"])
    return Part(number, str(network["names"][number]), str(folder), result)


def _refuse_another_run(part: Part, first: Part) -> None:
    one, other = _what_it_is(part.result), _what_it_is(first.result)
    for key in dict.fromkeys([*other, *one]):
        mine, theirs = one.get(key), other.get(key)
        unsaid = key == "variables" and not (mine and theirs)  # ended before a client told them
        if mine != theirs and not unsaid:
            raise ConfigError(
                f"{part.folder}: {key} is {mine!r}, but {theirs!r} in {first.folder}; gather "
                "folders of one run only"
            )


def _what_it_is(result: RunResult) -> dict[str, Any]:
    """Return what must be the same in all folders, by its name; the run first."""
    network = {f"network.{key}": result.network.get(key) for key in ("run", "names", "edges")}
    about = {"study": result.study, "seed": result.seed, "variables": result.variables}
    return {**network, **about, **{f"config.{k}": v for k, v in result.config.items()}}


def _network(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the graph, who is gathered, and what happened by the servers' clocks."""
    about = parts[0].result.network
    events = [
        {**event, "of": part.name}
        for part in parts
        for event in part.result.network.get("events", [])
    ]
    found: dict[str, Any] = {
        "run": about["run"],
        "names": list(about["names"]),
        "edges": [list(edge) for edge in about["edges"]],
        "merged": [part.name for part in parts],
        "events": sorted(events, key=lambda event: float(event.get("seconds", 0.0))),
    }
    stale = {part.result.network.get("max_staleness") for part in parts}
    return found if len(stale) > 1 else {**found, "max_staleness": stale.pop()}


def _own_notes(parts: Sequence[Part], left_out: Sequence[str]) -> list[str]:
    """Return what a reader must know of the gathering itself."""
    names = parts[0].result.network["names"]
    here = {part.server for part in parts}
    notes = []
    if absent := [str(name) for number, name in enumerate(names) if number not in here]:
        notes.append(
            f"Not gathered: {', '.join(absent)}. Their models are unknown (nan in result.npz), and "
            "their clients, bytes and privacy are in no number here."
        )
    for part in parts:
        if not part.has_model:
            notes.append(
                f"{part.name} ended ({part.result.status}) before it had a model: its model is "
                "unknown (nan in result.npz), and its clients are not listed."
            )
        if not part.result.ledger:
            notes.append(f"{part.name} left no ledger: what its clients spent is not counted.")
    if left_out:
        notes.append(
            f"Left out of result.npz, as servers differ or lack it: {', '.join(left_out)}."
        )
    seen: dict[int, str] = {}
    for part in parts:
        for client in part.result.clients:
            place = int(client.get("partition", -1))
            if place >= 0 and place in seen:
                notes.append(
                    f"Partition {place} is a client of {seen[place]} and of {part.name}; every "
                    "client should have a partition-id of its own."
                )
            seen[place] = part.name
    return notes


def _their_notes(parts: Sequence[Part]) -> list[str]:
    return [f"{part.name}: {note}" for part in parts for note in part.result.notes]


def _settled(values: Sequence[bool | None]) -> bool | None:
    """Return whether all servers have settled; None where one does not say."""
    if False in values:
        return False
    return None if None in values else True


def _shared(values: Sequence[str], otherwise: str) -> str:
    return values[0] if len(set(values)) == 1 else otherwise
