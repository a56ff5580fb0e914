"""Private and useful, end to end: one noisy sum, graphs that stay at home, seven messages."""

from __future__ import annotations

import stat
from collections import Counter

import numpy as np
import pytest

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps import run
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.data import synthetic_table
from trellis.apps.consensus_graph.private import forecast, pooled
from trellis.apps.consensus_graph.private.personal import personal_graph
from trellis.privacy.accounting.budget import DeviceLedger, Policy
from trellis.privacy.secagg.graph import expected_noisers
from trellis.sim.faults import Drop
from trellis.sim.grid import LocalGrid, run_local
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"
SMALL = {"privacy": "dp", "nodes": 8, "clients": 6, "signals": "30", "epsilon": 3.0}


def signals(settings, seed=1):
    config = ConsensusGraphConfig.from_settings(settings)
    return [synthetic_table(config, seed, i).values for i in range(config.clients)]


def test_private_is_one_noisy_sum_with_graphs_at_home():
    result = run(STUDY, SMALL)
    assert len(result.metrics) == 1
    assert result.arrays["weights"].shape == (6, 28)
    assert any("gathered for evaluation" in note for note in result.notes)
    assert any(note.startswith("Forecast: with 6 clients and epsilon=3 ") for note in result.notes)
    for entry in result.ledger["clients"]:
        (event,) = entry["events"]
        assert event["mechanism"] == "summed-gaussian"
        assert entry["epsilon"] == pytest.approx(3.0, rel=1e-6)
        assert entry["epsilon"] <= 3.0
        assert event["noisers"] == expected_noisers(6, 0.1, 0.1)
    # Each client's own graph, from its raw data and the public consensus.
    consensus, noise = result.arrays["consensus"], result.headline["noise"]
    for w, raw in zip(result.arrays["weights"], signals(SMALL), strict=True):
        found = personal_graph(raw, consensus / consensus.max(), noise, 2.0)
        np.testing.assert_allclose(w, found.weights, rtol=1e-9, atol=1e-12)


def test_with_next_to_no_noise_the_consensus_is_that_of_the_pooled_statistic():
    settings = {**SMALL, "epsilon": 1e6, "signals": "10,20,30,40,50,60"}
    result = run(STUDY, settings)
    parts = [pooled.summands(raw) for raw in signals(settings)]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    expected = pooled.consensus_of(pooled.pool(total, 210, 0.0, 0.0), 2.0)
    np.testing.assert_allclose(result.arrays["consensus"], expected, rtol=0.02, atol=1e-3)


def test_the_forecast_is_the_noise_that_comes():
    settings = {**SMALL, "clients": 40, "epsilon": 0.7}
    config = ConsensusGraphConfig.from_settings(settings)
    expected = forecast.relative_noise(config, [30] * 40, 8, 0.7)
    assert run(STUDY, settings).headline["noise"] == pytest.approx(expected, rel=1e-3)


def test_seven_messages_reach_a_device(monkeypatch):
    kinds: Counter[tuple[int, str]] = Counter()
    original = LocalGrid.push_messages

    def counted(self, messages):
        messages = list(messages)
        for message in messages:
            kinds[message.metadata.dst_node_id, message.metadata.message_type] += 1
        return original(self, messages)

    monkeypatch.setattr(LocalGrid, "push_messages", counted)
    run(STUDY, SMALL)
    by_node = Counter(node for node, _ in kinds.elements())
    assert set(by_node.values()) == {7}
    kinds.clear()
    run(STUDY, {**SMALL, "held-out": 0.2})
    assert set(Counter(node for node, _ in kinds.elements()).values()) == {10}


def test_the_same_seed_gives_the_same_bits():
    first, second = run(STUDY, SMALL, seed=7), run(STUDY, SMALL, seed=7, workers=2)
    for name in first.arrays:
        assert first.arrays[name].tobytes() == second.arrays[name].tobytes(), name
    assert not np.array_equal(
        run(STUDY, SMALL, seed=8).arrays["consensus"], first.arrays["consensus"]
    )


def test_a_held_out_score_is_counted_within_epsilon():
    settings = {**SMALL, "clients": 30, "nodes": 10, "held-out": 0.2, "epsilon": 2.0}
    result = run(STUDY, settings)
    for entry in result.ledger["clients"]:
        assert len(entry["events"]) == 2
        assert 1.99 < entry["epsilon"] <= 2.0
        first, second = (event["sensitivity"] / event["sigma"] for event in entry["events"])
        assert second**2 / (first**2 + second**2) == pytest.approx(0.1, abs=1e-3)
    headline = result.headline
    # Of 180 signals; what a good consensus explains, within the noise that is told.
    assert headline["held-out"] == pytest.approx(0.7, abs=0.15 + 3 * headline["held-out-noise"])
    assert headline["helped"] == pytest.approx(0.9, abs=0.2 + 3 * headline["helped-noise"])


def test_one_that_drops_out_is_missing_and_too_many_stop_the_run():
    settings = {**SMALL, "clients": 12, "dropout": 0.2}
    late = Drop(category="train", since=1)
    result = run(STUDY, settings, faults={3: late, 5: late})
    assert result.status == "completed"
    assert np.all(np.isfinite(result.arrays["consensus"]))
    with pytest.raises(StudyError, match="no secure sum"):
        run(STUDY, settings, faults=dict.fromkeys(range(6), late))


def test_alone_at_home_nothing_is_released():
    result = run(STUDY, {**SMALL, "epsilon": 1.0, "method": "igl"})
    assert all(not entry["events"] for entry in result.ledger["clients"])
    assert result.metrics == []
    for w, raw in zip(result.arrays["weights"], signals(SMALL), strict=True):
        np.testing.assert_allclose(w, personal_graph(raw, None, 0.0, 2.0).weights, rtol=1e-9)


def test_fedavg_has_one_graph_for_all():
    result = run(STUDY, {**SMALL, "method": "fedavg"})
    for w in result.arrays["weights"]:
        np.testing.assert_array_equal(w, result.arrays["consensus"])
    assert not any("gathered" in note for note in result.notes)


def test_one_shot_gives_the_graphs_of_the_rounds_to_the_bit():
    settings = {"nodes": 8, "clients": 6, "signals": "30", "rounds": 60}
    rounds, once = run(STUDY, settings), run(STUDY, {**settings, "method": "one-shot"})
    assert len(rounds.metrics) > 3
    assert len(once.metrics) == 1
    assert once.metrics[0]["iterations"] == len(rounds.metrics)
    for name, array in rounds.arrays.items():
        assert array.tobytes() == once.arrays[name].tobytes(), name
    assert once.headline["objective"] == rounds.headline["objective"]
    assert once.settled
    assert once.bytes_up < rounds.bytes_up / 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"local-steps": 3}, "local-steps has no effect.*privacy=none or paper"),
        ({"sample": 3}, "sample has no effect"),
        ({"robust": "median"}, "robust has no effect"),
        ({"rho": 2.0}, "rho has no effect.*privacy=none or paper"),
        ({"method": "igl"}, "epsilon has no effect.*method=fedgl or fedavg"),
        ({"clients": 2}, "needs three"),
        ({"privacy": "none"}, "epsilon has no effect.*privacy=paper or dp"),
        ({"privacy": "none", "epsilon": 1.0, "dropout": 0.2}, "dropout has no effect"),
        ({"method": "one-shot"}, "privacy='dp' with method='one-shot'.*privacy=none"),
        ({"method": "jgl"}, "method='jgl': use one of fedgl, igl, fedavg, one-shot"),
        ({"release": "sum"}, "release: unknown setting"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        ConsensusGraphConfig.from_settings({**SMALL, **changes})


# --- on devices ----------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path):
    rng = np.random.default_rng(0)
    nodes = []
    for name in "abcd":
        np.savez(tmp_path / f"{name}.npz", X=rng.normal(size=(40, 5)))
        nodes.append(
            {"data-path": str(tmp_path / f"{name}.npz"), "state-path": str(tmp_path / f"s-{name}")}
        )
    return nodes


def start(nodes, out, **settings) -> RunResult:
    run_config = make_run_config(
        STUDY, {"clients": len(nodes), "privacy": "dp", **settings}, seed=1
    )
    run_local(
        apps.server_app, apps.client_app, nodes, run_config | {"out": str(out), "report": True}
    )
    return RunResult.load(out)


def test_devices_keep_their_graphs_and_say_nothing_of_them(devices, tmp_path):
    result = start(devices, tmp_path / "out", epsilon=2.0)
    assert set(result.arrays) == {"consensus"}
    assert any("keep them" in note for note in result.notes)
    for name in "abcd":
        (folder,) = (tmp_path / f"s-{name}" / "results").iterdir()
        files = {path.name for path in folder.iterdir()}
        assert files == {*("result.npz", "model.json", "graph.graphml", "edges.csv", "result.html")}
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
        with np.load(folder / "result.npz") as kept, np.load(tmp_path / f"{name}.npz") as raw:
            consensus = result.arrays["consensus"]
            shown = personal_graph(
                raw["X"], consensus / consensus.max(), result.headline["noise"], 2.0
            )
            np.testing.assert_allclose(kept["weights"], shown.weights, rtol=1e-9)
        assert "pull" in (folder / "result.html").read_text()
    # Without signed keys a device counts on nobody's noise but its own.
    for name in "abcd":
        (event,) = DeviceLedger(tmp_path / f"s-{name}").events()
        assert (event.mechanism, event.noisers) == ("summed-gaussian", 1)
        assert DeviceLedger(tmp_path / f"s-{name}").spent() <= 2.0
    assert "keep them" in (tmp_path / "out" / "report.html").read_text()


def test_every_run_is_a_new_release_and_the_budget_is_for_life(devices, tmp_path):
    devices[0]["max-epsilon"] = 1.2
    assert len(start(devices, tmp_path / "1", epsilon=1.0).clients) == 4
    second = start(devices, tmp_path / "2", epsilon=1.0)
    assert [c["name"] for c in second.clients] == ["b", "c", "d"]  # the others go on
    assert "this run (epsilon 1) would bring the total to" in reasons(tmp_path / "s-a")[-1]
    assert len(DeviceLedger(tmp_path / "s-a", Policy(1.2, 1e-5, True)).events()) == 1
    assert len(DeviceLedger(tmp_path / "s-b").events()) == 2


def test_learning_alone_at_home_spends_nothing(devices, tmp_path):
    devices[1]["max-epsilon"] = 1e-6
    result = start(devices, tmp_path / "out", method="igl")
    assert result.status == "completed"
    assert len(result.clients) == 4
    for name in "abcd":
        assert not DeviceLedger(tmp_path / f"s-{name}").events()
        assert len(list((tmp_path / f"s-{name}" / "results").iterdir())) == 1
