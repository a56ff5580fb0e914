"""``trellis graphs``: the graphs of any client of a run, from what it kept."""

from __future__ import annotations

from dataclasses import replace

import networkx
import numpy as np
import pytest

from benchmarks.large_results import MAKERS
from trellis.apps.command import main
from trellis.apps.common.metrics import edges
from trellis.apps.common.results import FolderLock, RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.runs.graphs import SHARED, wanted_graphs, write_wanted


@pytest.fixture(scope="module")
def consensus() -> RunResult:
    return MAKERS["consensus-graph"](60, 8)


def test_named_clients_get_files_and_pictures(tmp_path, consensus, capsys):
    kept = replace(consensus)
    kept.save(tmp_path)
    assert main(["graphs", str(tmp_path), "--client", "ward-7", "ward-60"]) == 0
    told = capsys.readouterr().out.split()
    assert told == [
        str(tmp_path / "graphs" / f"{name}.{suffix}")
        for name in ("ward-7", "ward-60")
        for suffix in ("graphml", "png")
    ]
    graph = networkx.read_graphml(tmp_path / "graphs" / "ward-60.graphml")
    weights = consensus.arrays["weights"][59]
    assert graph.number_of_edges() == np.count_nonzero(edges(weights, 1e-4))
    assert (tmp_path / "graphs" / "ward-7.png").read_bytes().startswith(b"\x89PNG")
    # A new run in this folder takes them away.
    noted = (tmp_path / ".written").read_text().split()
    assert set(noted) >= {"graphs/ward-7.graphml", "graphs/ward-60.png"}


def test_without_a_name_the_shared_graph_and_with_all_everyone(tmp_path, consensus):
    assert wanted_graphs(consensus) == [SHARED]
    assert wanted_graphs(consensus, everyone=True) == list(range(60))
    (written,) = write_wanted(consensus, [SHARED], tmp_path)
    assert [path.name for path in written] == ["consensus.graphml", "consensus.png"]


def test_an_unknown_client_is_told_whom_it_may_be(tmp_path, consensus, capsys):
    replace(consensus).save(tmp_path)
    assert main(["graphs", str(tmp_path), "--client", "wardd-12"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "client='wardd-12': no client of this run; is it ward-12" in told
    assert not (tmp_path / "graphs").exists()
    with pytest.raises(ConfigError, match=r"the clients are ward-1, .* and 48 more"):
        wanted_graphs(consensus, ["???"])


def test_graphs_that_clients_kept_are_on_their_devices(consensus):
    arrays = {name: consensus.arrays[name] for name in ("consensus", "gamma")}
    kept = replace(consensus, arrays=arrays)
    with pytest.raises(ConfigError, match=r"kept their graphs.*trellis device result STATE"):
        wanted_graphs(kept, ["ward-1"])
    assert wanted_graphs(kept) == [SHARED]


def test_learning_alone_leaves_no_shared_graph(consensus):
    alone = replace(consensus, config={**consensus.config, "method": "igl"})
    with pytest.raises(ConfigError, match="clients share no graph; name some with --client"):
        wanted_graphs(alone)
    assert wanted_graphs(alone, ["ward-2"]) == [1]


@pytest.mark.parametrize(
    ("study", "files"),
    [
        ("server-graph", ["servers.graphml", "servers.png"]),
        ("cluster-admm", ["servers.graphml", "servers.png"]),
        ("gromov-wasserstein", ["neighbours.graphml", "neighbours.png", "distances.csv"]),
    ],
)
def test_studies_without_graphs_of_clients_say_so_and_write_what_they_have(tmp_path, study, files):
    result = MAKERS[study](20, 12)
    with pytest.raises(ConfigError, match=rf"{study} learns no graph for each client.*there is"):
        wanted_graphs(result, everyone=True)
    (written,) = write_wanted(result, wanted_graphs(result), tmp_path)
    assert [path.name for path in written] == files
    named = networkx.read_graphml(written[0])
    assert named.number_of_nodes() == 12
    assert named.number_of_edges() > 0


def test_a_client_that_never_answered_has_no_graph(tmp_path):
    result = MAKERS["joint-precision"](8, 12)
    result.arrays["answered"] = np.array([9, 9, 0, 9, 9, 9, 9, 9])
    list(write_wanted(result, [1], tmp_path))
    assert (tmp_path / "ward-2.graphml").is_file()
    with pytest.raises(ConfigError, match="client ward-3 never answered"):
        list(write_wanted(result, [2], tmp_path))


def test_a_run_that_learned_nothing_or_still_writes_is_refused(tmp_path, consensus):
    with pytest.raises(ConfigError, match="has learned no graph"):
        wanted_graphs(replace(consensus, arrays={}, status="failed"))
    own = replace(consensus)
    own.save(tmp_path)
    lock = FolderLock(tmp_path)
    with pytest.raises(ConfigError, match="a run still writes"):
        list(write_wanted(own, [SHARED], tmp_path / "graphs"))
    lock.release()
