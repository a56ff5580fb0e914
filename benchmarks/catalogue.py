"""Which benchmarks there are. One more is a module and an entry here.

A benchmark is a function ``run(full: bool = False) -> list[dict]`` that returns rows made by
`timing.entry`, or nothing where what it needs (a data set) is absent. Quick ones take together five
minutes. Modules are imported when they run: each brings its own peer.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Listed:
    """Where a benchmark is, and what the page says of it."""

    where: str  # module or module:function
    title: str
    only_full: bool = False


BENCHMARKS = {
    "engine": Listed("benchmarks.engine", "Messages: the engine in one process"),
    "device-start": Listed("benchmarks.device_start", "A device's process for one message"),
    "command-start": Listed("benchmarks.command_start", "trellis run of a small study"),
    "report": Listed("benchmarks.report", "The report of a run"),
    "many-clients": Listed("benchmarks.many_clients", "Many clients in one process"),
    "long-runs": Listed("benchmarks.long_runs", "Ten thousand rounds"),
    "deployment": Listed("benchmarks.deployment", "Rounds on real SuperNodes", only_full=True),
    "smooth-graph": Listed("benchmarks.smooth_graph", "consensus-graph: the local problem"),
    "secure-aggregation": Listed("benchmarks.secure_aggregation", "Secure aggregation"),
    "kendall": Listed("benchmarks.kendall", "Kendall's tau matrix"),
    "joint-precision": Listed("benchmarks.joint_precision", "joint-precision: the joint problem"),
    "screening": Listed("benchmarks.screening", "joint-precision: screening"),
    "large-p": Listed("benchmarks.large_p", "joint-precision: many variables"),
    "cluster-admm": Listed("benchmarks.cluster_admm", "cluster-admm: a round"),
    "gw-mutag": Listed("benchmarks.gromov_wasserstein:mutag", "Pairs of graphs: MUTAG"),
    "gw-proteins": Listed("benchmarks.gromov_wasserstein:proteins", "Pairs of graphs: PROTEINS"),
    "gw-encoded": Listed("benchmarks.gromov_wasserstein:encoded", "Pairs of graphs: one bit a row"),
    "gw-growth": Listed("benchmarks.graph_growth", "Pairs of graphs: how time grows"),
    "gw-pruning": Listed("benchmarks.gw_pruning", "Pairs of graphs: not all of them"),
    "gw-mutag-all": Listed("benchmarks.gromov_wasserstein:mutag_all", "All of MUTAG, from files"),
}


def known() -> list[dict[str, Any]]:
    """Return the rows that are kept."""
    if not RESULTS.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return [{key: _number(key, value) for key, value in row.items()} for row in rows]


def as_json(rows: list[dict[str, Any]]) -> str:
    """Return rows as JSON that every reader takes: what is not a number is null."""
    plain = [{key: _plain(value) for key, value in row.items()} for row in rows]
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def _number(key: str, value: Any) -> Any:
    """Undo what `as_json` did to a peer that could not be measured."""
    if key == "ratio_spread" and value is not None:
        return [math.nan if part is None else part for part in value]
    return math.nan if value is None and key in ("ours", "peer", "ratio") else value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
