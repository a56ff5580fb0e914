"""What the report of a run costs: its page, its graphs as files, the libraries that draw them.

Each report is made in a process of its own, of a result in hand, as at the end of ``trellis run``:
the study's server app is loaded, what draws is not. Where the run can be learned in a moment, the
peer is the learning, in the same process before it; results that take hours to learn are made up
(`benchmarks.large_results`), and the peer is the two seconds of CPU that a report may take. A page
must stay below 3 MB.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.apps import STUDIES, study_module
from trellis.apps.common.files.run_folder import note_written
from trellis.apps.common.recording import wording
from trellis.apps.common.results import RunResult
from trellis.apps.common.threads import one_blas_thread

from .timing import entry

BUDGET = 2.0  # CPU seconds
MOST_BYTES = 3_000_000


@dataclass(frozen=True)
class Case:
    """One report: of which study, with how many clients and of what size the rest is."""

    study: str
    clients: int
    size: int
    privacy: str = "none"
    learned: bool = False
    quick: bool = True

    @property
    def name(self) -> str:
        """The name of the benchmark's entry."""
        private = "" if self.privacy == "none" else f"-{self.privacy}"
        return f"report-{self.study}-{self.clients}x{self.size}{private}"


_WHAT = {
    "consensus-graph": "nodes",
    "joint-precision": "variables",
    "server-graph": "servers",
    "cluster-admm": "servers",
    "gromov-wasserstein": "graphs",
}
CASES = (
    Case("consensus-graph", 5, 100, learned=True),
    Case("consensus-graph", 10, 300, quick=False),
    Case("consensus-graph", 1600, 20, quick=False),
    Case("consensus-graph", 1000, 20, "dp", quick=False),
    Case("consensus-graph", 1000, 300),
    Case("joint-precision", 10, 300, quick=False),
    Case("joint-precision", 1000, 54),
    Case("joint-precision", 1000, 54, "dp", quick=False),
    Case("joint-precision", 1000, 300, quick=False),
    Case("server-graph", 1000, 100),
    Case("server-graph", 1000, 1000, quick=False),
    Case("server-graph", 1000, 10, "dp", quick=False),
    Case("cluster-admm", 1000, 100),
    Case("cluster-admm", 1000, 10, "dp", quick=False),
    Case("gromov-wasserstein", 1000, 1000),
)


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry a report; quick ones are measured once, the full set three times each."""
    return [_measured(case, 3 if full else 1) for case in CASES if full or case.quick]


def _measured(case: Case, runs: int) -> dict[str, Any]:
    place = str(CASES.index(case))
    found: list[dict[str, float]] = []
    for _ in range(runs):
        words = [sys.executable, "-m", "benchmarks.report", place]
        told = subprocess.run(words, check=True, capture_output=True, text=True)
        found.append(json.loads(told.stdout.splitlines()[-1]))
    if max(one["bytes"] for one in found) > MOST_BYTES:
        raise RuntimeError(f"{case.name}: the page has {found[0]['bytes']:,.0f} bytes")
    what = "learned just before" if case.learned else "result made up"
    return entry(
        case.name,
        [one["report"] for one in found],
        [one["learning"] or BUDGET for one in found],
        peer_version="learning the run" if case.learned else "the budget of 2 s",
        unit="CPU s",
        setting=f"{case.clients:,} clients, {case.size:,} {_WHAT[case.study]}, "
        f"privacy={case.privacy}, {what}",
        ours_cores=1,
        peer_cores=1,
        page_megabytes=found[0]["bytes"] / 1e6,
        more_megabytes_of_memory=found[0]["memory"],
    )


def report_of(result: RunResult, folder: Path) -> Path:
    """Write what a run writes after its last round; return the page."""
    from trellis.apps.pages.clients.once import sharing
    from trellis.apps.pages.report import write_report

    module = study_module(result.study, "report")
    with sharing():
        note_written(folder, module.export_graphs(result, folder))
        words = wording(result.study)
        return write_report(result, module.sections(result), folder / "report.html", words)


def _one(case: Case) -> dict[str, float]:
    """Make one report, and measure it; in a process of its own."""
    from .large_results import MAKERS

    learning = 0.0
    importlib.import_module(f"{STUDIES[case.study]}.server_app")
    if case.learned:
        from trellis.apps.common.runner import run as learn

        begin = time.process_time()
        settings = {"clients": case.clients, _WHAT[case.study]: case.size}
        result = learn(case.study, settings, report=False)
        learning = time.process_time() - begin
    else:
        result = MAKERS[case.study](case.clients, case.size, privacy=case.privacy)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        size = report_of(result, Path(folder)).stat().st_size
        taken = time.process_time() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = (after - before) / 1024.0
    return {"report": taken, "learning": learning, "bytes": size, "memory": memory}


if __name__ == "__main__":
    with one_blas_thread():
        print(json.dumps(_one(CASES[int(sys.argv[1])])))
