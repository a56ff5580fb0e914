"""Runs of cluster-admm for its report, and what reads a section."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from trellis import apps
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.data import synthetic_truth
from trellis.apps.cluster_admm.report import clusters as report_clusters
from trellis.apps.cluster_admm.report import page as report
from trellis.apps.cluster_admm.report import privacy as report_privacy
from trellis.apps.cluster_admm.report.outcome import Outcome
from trellis.apps.common.recording import wording
from trellis.apps.common.results import RunResult
from trellis.apps.common.servers import build_topology
from trellis.apps.pages.report import Table, write_report

CLUSTERS, SERVERS = "The clusters' models", "The graph of servers"
ROUNDS, METHODS = "Learning over the rounds", "The methods side by side"
PRIVACY = "Privacy as the rounds go"
SMALL = {
    "servers": 4,
    "topology": "path",
    "clients": 12,
    "features": 5,
    "samples": "6-9",
    "rounds": 8,
}


def run(seed=1, data=None, **changes) -> RunResult:
    settings = SMALL | {name.replace("_", "-"): value for name, value in changes.items()}
    settings = ClusterAdmmConfig.having_effect(settings)
    result = apps.run("cluster-admm", settings, seed=seed, data=data)
    config = ClusterAdmmConfig.from_settings(settings)
    result.arrays.setdefault("adjacency", build_topology(config, seed).adjacency)
    if data is None:
        result.arrays.setdefault("true_clusters", synthetic_truth(config, seed).clusters)
    return result


def undrawn(figure, label=""):
    """Stand in for `plots.svg`: what a picture says, without its lines."""
    return Markup('<svg aria-label="{}">').format(label)


def without(result, *names):
    kept = {name: array for name, array in result.arrays.items() if name not in names}
    return replace(result, arrays=kept)


def changed(result, **arrays):
    return replace(result, arrays={**result.arrays, **arrays})


def page(result, tmp_path):
    path = tmp_path / "report.html"
    write_report(result, report.sections(result), path, wording(result.study))
    return path.read_text()


def part(result, title):
    """Return one section, without the work of the others."""
    outcome = Outcome.of(result)
    if title == CLUSTERS and outcome is not None:
        return report_clusters.clusters(result, outcome)
    if title == SERVERS and outcome is not None:
        return report_clusters.servers(result, outcome)[0]
    if title == PRIVACY:
        return report_privacy.privacy(result, outcome)
    return next(section for section in report.sections(result) if section.title == title)


def text_of(section):
    return "\n".join(block.html() for block in section.blocks)


def shown(result, title):
    return text_of(part(result, title))


def by_title(result):
    return {section.title: text_of(section) for section in report.sections(result)}


def table(result, title, first):
    """Return the table of a section whose first header is ``first``, rows by their first cell."""
    tables = [block for block in part(result, title).blocks if isinstance(block, Table)]
    found = next(block for block in tables if block.headers[0] == first)
    return {row[0]: dict(zip(found.headers, row, strict=True)) for row in found.rows}
