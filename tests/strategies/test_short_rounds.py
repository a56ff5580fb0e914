"""How many files one round of a strategy passes through, counted by a trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.strategies import test_flower as graphs
from tests.strategies.cluster_admm import test_flower as admm
from trellis.strategies.cluster_admm.strategy import ClusterAdmm
from trellis.strategies.consensus_graph.strategy import ConsensusGraph

ROOT = Path(__file__).parents[2]
# A runtime's work, the same for every strategy, is not on the way.
PACKAGES = ("apps", "strategies", "privacy")


def files_of_round(strategy, number: int, start) -> set[str]:
    """Return the files in which anything runs while ``strategy`` does round ``number``."""
    found: set[str] = set()

    def note(frame, event, argument):
        if event == "call":
            found.add(frame.f_code.co_filename)

    configure, aggregate = strategy.configure_train, strategy.aggregate_train

    def begin(server_round, *arguments):
        if server_round == number:
            sys.setprofile(note)
        return configure(server_round, *arguments)

    def end(server_round, replies):
        made = aggregate(server_round, replies)
        if server_round == number:
            sys.setprofile(None)
        return made

    strategy.configure_train, strategy.aggregate_train = begin, end
    try:
        start(strategy)
    finally:
        sys.setprofile(None)
    paths = (Path(name).resolve() for name in found)
    ours = (path.relative_to(ROOT) for path in paths if path.is_relative_to(ROOT))
    return {str(path) for path in ours if path.parts[0] in PACKAGES}


@pytest.mark.parametrize(
    ("module", "build", "first", "least"),
    [
        (graphs, lambda: ConsensusGraph(1.0, 0.3), graphs.first, 4),
        (admm, lambda: ClusterAdmm(admm.RING, admm.CLUSTERS, 3.0), admm.zeros, 4),
    ],
    ids=["consensus-graph", "cluster-admm"],
)
def test_a_round_under_flowers_loop_is_read_in_eight_files(module, build, first, least):
    def start(strategy):
        module.on_server(lambda grid: strategy.start(grid, first(), 3), module.plain_app())

    files = files_of_round(build(), 2, start)
    assert least <= len(files) <= 8, sorted(files)
