"""The files of a run: what stands in its folder, and what is in ``run.json``."""

from __future__ import annotations

from dataclasses import fields

from trellis.apps.common.files import run_folder
from trellis.apps.common.results import RunResult

from ..described import meanings
from .markdown import code, prose, sentence, table

# What each file is, by its name in `run_folder`.
FILES = {
    run_folder.HEADER: "settings, versions, times, bytes, scores and the privacy ledger, see "
    "below; written when the run begins and again when it ends",
    "metrics.csv": "one row per round, written as it comes: round, clients that answered and "
    "failed, bytes, seconds, and what the study measures",
    "scores.csv": "scores on held-out records, one row per client and measure; only where records "
    "were held out",
    "result.npz": "the arrays that were learned; graphs are vectors in `numpy.triu_indices(d, 1)` "
    "order. `numpy.load` reads it",
    "model.json": "how the arrays are used: study, variables in order, units. `trellis predict` "
    "reads both",
    "report.html": "the page about the run; it needs nothing beside it",
    "picture.svg": "the first picture of that page, which an index of several runs shows",
    "clients.csv": "who belongs to which server and cluster; studies with several servers",
    "models.csv": "coefficients of models, by server, cluster or client; studies that learn models",
    "distances.csv": "distances between all graphs; gromov-wasserstein",
    "graphs.csv": "whose graph is which, and its label where it was told; gromov-wasserstein",
    f"{run_folder.GRAPHS}/": "learned graphs as GraphML, pictures and tables; `trellis graphs` "
    "writes more of them",
    "checkpoint/": "the state of the run after its last round: what `--resume` goes on from",
    "nodes/": "what simulated clients keep between rounds, where they keep anything",
    run_folder.WRITTEN: "names of the graphs that were written, so that a new run deletes no other",
    ".lock": "held by the process that writes; what is left of it says nothing",
}
# Kept in memory or in files of their own, not in run.json.
ELSEWHERE = ("arrays", "metrics", "folder")


def page() -> str:
    """Return the page of a run's files."""
    told = meanings(RunResult)
    keys = [field.name for field in fields(RunResult) if field.name not in ELSEWHERE]
    rows = [(code(key), sentence(prose(_meaning(told, key)))) for key in ("format", *keys)]
    return "\n\n".join(
        [
            "# Files of a run",
            "`trellis run STUDY --out DIR` (`out=` from Python) leaves these in DIR. Only what a "
            "run wrote is ever deleted by another; other files in the folder are never touched.",
            table(
                ("file", "holds"), [(code(name), sentence(text)) for name, text in FILES.items()]
            ),
            "## `run.json` { #run-json }",
            table(("key", "holds"), rows),
            "## On a device { #device }",
            "What a device keeps in its state folder (`state-path`) is its owner's: "
            "[the owner's policy](page:policy#what-is-kept).",
            "## Of several runs { #several }",
            table(
                ("file", "holds"),
                [
                    ("`index.html`", "`trellis run all`: a line for every run, with its page"),
                    (
                        "`best.toml`, `trials.csv`, `tuning.html`",
                        "`trellis tune`: what it chose, all tries, its page",
                    ),
                    (
                        "`FIGURE.csv`, `FIGURE.png`",
                        "`trellis paper`: the numbers of a figure, and its picture",
                    ),
                ],
            ),
        ]
    )


def _meaning(told: dict[str, tuple[str, str]], key: str) -> str:
    if key == "format":
        return "number of the file's layout"
    return told[key.replace("_", "-")][0]
