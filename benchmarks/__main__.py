"""`python -m benchmarks [name ...]`: run benchmarks, print them, keep them in ``results.json``.

A benchmark is a module with ``run() -> list[dict]``, or ``module:function``; each dict holds
``name``, ``ours``, ``peer``, ``peer_version``, ``ratio`` (above 1: ours is better), ``unit`` and
``setting``, and more if it likes.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from apps.common.results import write_atomically

# One more benchmark is a module and a line. Modules are imported when they run: each brings its
# own peer.
BENCHMARKS = {
    "engine": "benchmarks.engine",
    "device-start": "benchmarks.device_start",
    "deployment": "benchmarks.deployment",
    "smooth-graph": "benchmarks.smooth_graph",
    "secure-aggregation": "benchmarks.secure_aggregation",
    "kendall": "benchmarks.kendall",
    "joint-precision": "benchmarks.joint_precision",
    "screening": "benchmarks.screening",
    "cluster-admm": "benchmarks.cluster_admm",
    "gw-mutag": "benchmarks.gromov_wasserstein:mutag",
    "gw-proteins": "benchmarks.gromov_wasserstein:proteins",
    "gw-encoded": "benchmarks.gromov_wasserstein:encoded",
    "gw-mutag-all": "benchmarks.gromov_wasserstein:mutag_all",
}
RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    console = Console()
    for name in names:
        console.print(f"[bold]{name}[/bold] ...")
        module, _, function = BENCHMARKS[name].partition(":")
        entries = getattr(importlib.import_module(module), function or "run")()
        # After each: an hour of measurements does not hang on the last one.
        keep(name, entries)
        console.print(table(entries))


def keep(name: str, entries: list[dict[str, Any]], path: Path = RESULTS) -> None:
    """Replace what ``path`` holds of the benchmark ``name``, and only that."""
    kept = json.loads(path.read_text()) if path.is_file() else []
    others = [entry for entry in kept if entry["benchmark"] != name]
    mine = [{**entry, "benchmark": name} for entry in entries]
    order = list(BENCHMARKS)
    merged = sorted([*others, *mine], key=lambda entry: _position(entry["benchmark"], order))
    write_atomically(path, (json.dumps(merged, indent=2) + "\n").encode())


def table(entries: list[dict[str, Any]]) -> Table:
    """Return the entries as a table for people."""
    result = Table("benchmark", "ours", "peer", "unit", "ratio", "against", "setting")
    for entry in entries:
        numbers = [f"{entry[key]:,.4g}" for key in ("ours", "peer")]
        ratio = f"[{'green' if entry['ratio'] > 1 else 'red'}]{entry['ratio']:,.3g}[/]"
        result.add_row(
            entry["name"], *numbers, entry["unit"], ratio, entry["peer_version"], entry["setting"]
        )
    return result


def _position(name: str, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)


if __name__ == "__main__":
    main()
