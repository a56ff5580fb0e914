"""Record the bits of every method's result, and compare them after a refactoring.

    python -m tests.golden record before.json      # on the code as it was
    python -m tests.golden record after.json
    python -m tests.golden compare before.json after.json

One entry per study, method, privacy and seed: the sha256 of every array of ``result.npz``. Bits
depend on the processor's BLAS kernels, so a record is compared on the machine that made it and is
not committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SEEDS = (1, 2)

# Per study: settings of a small run, and what is added for each method and privacy.
SMALL: dict[str, dict[str, Any]] = {
    "consensus-graph": {"nodes": 8, "signals": "30", "clients": 4, "rounds": 6},
    "server-graph": {
        **{"clients": 12, "servers": 3, "topology": "path", "rounds": 8, "samples": "30"},
    },
    "cluster-admm": {
        **{"clients": 12, "servers": 3, "topology": "path", "clusters": "2", "rounds": 8},
        **{"features": 5, "samples": "4-9"},
    },
    "joint-precision": {"variables": 12, "blocks": 3, "samples": "80", "rounds": 60},
    "gromov-wasserstein": {"graphs": 12, "clients": 3, "rounds": 3, "downstream": "knn"},
}
MORE: dict[tuple[str, str, str], dict[str, Any]] = {
    ("consensus-graph", "fedgl", "paper"): {"local-steps": 3},
    ("server-graph", "hybrid", "paper"): {"clip": 1.0, "sigma": 1.0, "epsilon": 1e9},
    ("server-graph", "iid", "paper"): {"clip": 1.0, "sigma": 1.0, "epsilon": 1e9},
}


def record(cases: Mapping[tuple[str, str, str], dict[str, Any]], run: Any) -> dict[str, Any]:
    """Return the hashes of every case at every seed; a case that is refused says why."""
    found: dict[str, Any] = {}
    for (study, method, privacy), settings in cases.items():
        for seed in SEEDS:
            name = f"{study} {method} {privacy} seed={seed}"
            try:
                result = run(study, settings, seed=seed)
                arrays = result.arrays.items()
                found[name] = {key: digest(array) for key, array in sorted(arrays)}
            except Exception as error:
                found[name] = {"error": str(error).splitlines()[0][:200]}
            print(name, "error" if "error" in found[name] else "")
    return found


def digest(array: Any) -> str:
    """Return the sha256 of an array's type, shape and bytes."""
    array = np.ascontiguousarray(array)
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()[:16]


def current_cases() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return a small run of every row of every study's table of methods."""
    from trellis.apps import STUDIES, study_module

    found = {}
    for study in STUDIES:
        for row in study_module(study, "methods").METHODS.rows:
            key = (study, row.method, row.privacy)
            chosen = {"method": row.method, "privacy": row.privacy}
            budget = {"epsilon": 5.0} if "epsilon" in row.settings else {}
            small = {k: v for k, v in SMALL[study].items() if row.has(k)}
            found[key] = {**small, **budget, **MORE.get(key, {}), **chosen}
    return found


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for every case and array that differs."""
    lines = []
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            lines.append(f"{name}: only {'after' if name in after else 'before'}")
            continue
        was, now = before[name], after[name]
        wrong = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
        lines += [f"{name}: {', '.join(wrong)}"] if wrong else []
    return lines


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("file", type=Path)
    both = commands.add_parser("compare")
    both.add_argument("before", type=Path)
    both.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        from trellis.apps import run

        given.file.write_text(json.dumps(record(current_cases(), run), indent=1))
        return
    lines = compare(*(json.loads(file.read_text()) for file in (given.before, given.after)))
    print("\n".join(lines) or "no difference")


if __name__ == "__main__":
    main()
