"""A server that chooses settings and messages learns nothing of one record but by a release.

Each test plays it against real handlers on devices: two data sets that differ in one record must
look alike in everything but the noisy numbers: whether there is an answer, which records it has,
and their shapes.
"""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from trellis import apps
from trellis.apps import run
from trellis.apps.common.runner import make_run_config
from trellis.apps.consensus_graph.client_app import summands
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import synthetic_table
from trellis.apps.consensus_graph.problem import statistic
from trellis.sim.grid import LocalGrid
from trellis.strategies.consensus_graph.baselines import AveragedGraph
from trellis.strategies.core import wire

# Studies whose messages have their numbers in the record config.
BY_CONFIG = ("consensus-graph", "gromov-wasserstein", "joint-precision", "server-graph")


def ask(run_config, node, *asked: tuple[str, dict, dict]) -> list[Message]:
    """Return one device's answers to messages (kind, arrays, config)."""
    record = "config" if run_config["study"] in BY_CONFIG else "order"
    answers = []
    with LocalGrid(apps.client_app, [node], run_config) as grid:
        (number,) = grid.get_node_ids()
        for kind, arrays, config in asked:
            content = RecordDict({record: ConfigRecord(config)}) if config else RecordDict()
            if arrays:
                content["arrays"] = wire.record(arrays)
            answers += grid.send_and_receive([Message(content, number, kind)])
    return answers


def observable(answer: Message) -> object:
    """Return what of an answer must not depend on one record."""
    if answer.has_error():
        return "error"
    seen = {}
    for name, record in answer.content.items():
        if isinstance(record, ArrayRecord):
            seen[name] = {key: wire.unpack(array).shape for key, array in record.items()}
        elif isinstance(record, MetricRecord):
            seen[name] = sorted(record)
        else:
            seen[name] = dict(record)
    return seen


def device(folder, values, name="a", **more):
    """Return the node config of a device with this table; numbers as npz, text as csv."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(values, str):
        path = folder / f"{name}.csv"
        path.write_text(values)
    else:
        path = folder / f"{name}.npz"
        np.savez(path, X=values)
    return {"data-path": str(path), "state-path": str(folder / f"s-{name}"), **more}


def neighbours():
    """Yield (label, data set, data set): one record differs, and a refusal could tell which."""
    rng = np.random.default_rng(1)
    plain = rng.standard_normal((50, 4))

    def with_last(base, last):
        changed = base.copy()
        changed[-1] = last
        return changed

    rare = plain.copy()
    rare[:, 2] = 0.0
    yield "constant column", with_last(rare, [1, 1, 0, 1]), with_last(rare, [1, 1, 1, 1])
    twin = np.arange(50.0)[:, None] * np.ones((1, 4))
    twin[:, 2:] = rng.standard_normal((50, 2))
    yield "rank twins", with_last(twin, [49, 49, 0, 0]), with_last(twin, [49, -1, 0, 0])
    for label, odd in {
        "nan": [np.nan, 0, 0, 0],
        "inf": [0, np.inf, -np.inf, 0],
        "1e80": [1e80, 5e79, 2.5e79, 0],
        "1e155": [1e155, -1e155, 0, 1],
        "1.7e308": [1.7e308, -1.7e308, 1.7e308, 0],
        "1e-300": [1e-300, 0, 0, 0],
        "zeros": [0, 0, 0, 0],
    }.items():
        yield label, plain, with_last(plain, odd)
    rows = "a,b,c,d\n1,2,3,1\n2,1,5,7\n4,9,1,2\n"
    good = rows + "7,1,4,5\n"
    yield "text cell", good, rows + "7,Maria Rossi HIV+,4,5\n"
    yield "missing cell", good, rows + "7,,4,5\n"
    yield "short row", good, rows + "7,1\n"
    yield "long row", good, rows + "7,1,4,5,6,7\n"
    tabs = rows.replace(",", "\t")
    yield "no cell, by tabs", tabs + "7\t1\t4\t5\n", tabs + "\t\t\t\n"
    rest = "2,1,5,7\n4,9,1,2\n"
    yield "open quote", "a,b,c,d\n7,1,4,5\n" + rest, 'a,b,c,d\n7,"1,4,5\n' + rest
    yield "text array", plain.astype(str), with_last(plain.astype(str), ["x", "1", "", "2"])


CASES = list(neighbours())
GRAPH = np.full(6, 1.0 / 3.0)

FEDAVG = {"method": "fedavg", "secure-aggregation": True, "clients": 5}


def test_sums_over_changing_sets_hold_no_equations_for_single_clients(monkeypatch):
    """What the server gets from the secure grid, with who is in it."""
    seen = []
    rule = AveragedGraph.aggregate_train

    def spy(self, server_round, replies):
        replies = list(replies)
        (reply,) = replies  # one for all: their mean
        seen.append((tuple(self.asked), wire.arrays(reply.content["arrays"])))
        return rule(self, server_round, replies)

    monkeypatch.setattr(AveragedGraph, "aggregate_train", spy)
    run("consensus-graph", {**FEDAVG, "sample": 4, "rounds": 12, "tolerance": 0.0}, seed=7)
    assert len({who for who, _ in seen[1:]}) > 1  # sets do change
    told = [who for who, mean in seen if set(mean) != {"weights"}]
    assert told == [(1, 2, 3, 4, 5)]  # slopes and objectives: one mean, over everyone
    # What is in later means is the same for every client, whatever its data.
    config = ConsensusGraphConfig.from_settings(FEDAVG)
    for _, mean in seen[2:]:
        np.testing.assert_allclose(mean["weights"], seen[-1][1]["weights"])
    # The server's best guess at a client's statistic is the mean of all.
    slope = seen[0][1]["slope"] / 2.0
    for i in range(5):
        own = statistic(synthetic_table(config, 7, i).values)
        assert np.abs(slope - own).max() / own.max() > 1e-2


def test_a_client_adds_its_slope_to_one_sum_of_a_run_only(tmp_path):
    node = device(tmp_path, np.random.default_rng(0).standard_normal((20, 4)))
    run_config = make_run_config("consensus-graph", FEDAVG)
    context = Context(1, 1, node, RecordDict(), run_config)

    def message(**more):
        content = RecordDict({"arrays": wire.record({"consensus": GRAPH, "own": GRAPH, **more})})
        content["config"] = ConfigRecord({"server-round": 1, "pull": 0.0})
        return Message(content, 1, "train.secagg_masked")

    # Messages can be made in a run only.
    with LocalGrid(apps.client_app, [node], run_config):
        first = {"weights", "slope", "objective", "num-examples"}
        assert set(summands(message(), context).arrays) == first
        with pytest.raises(ValueError, match="in a sum already"):
            summands(message(), context)
        sent = summands(message(slope=np.ones(6)), context).arrays
        assert set(sent) == {"weights", "num-examples"}
        # And that is computed from what the server sent, not from the data.
        other = device(tmp_path, np.random.default_rng(9).standard_normal((20, 4)), "b")
        elsewhere = Context(1, 2, other, RecordDict(), run_config)
        same = summands(message(slope=np.ones(6)), elsewhere).arrays
        assert same["weights"].tobytes() == sent["weights"].tobytes()
