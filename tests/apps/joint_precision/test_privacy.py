"""What leaves a client, what can be made of it, and that it is what the ledger says."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from flwr.app import ConfigRecord, Context, Message, RecordDict

import apps
from apps import run
from apps.common import release as shared
from apps.common.node import Node
from apps.common.results import RunResult
from apps.common.runner import make_run_config
from apps.common.tables import Table
from apps.joint_precision import client_app as study_client
from apps.joint_precision import release
from apps.joint_precision.config import JointPrecisionConfig
from apps.joint_precision.data import synthetic_table
from apps.joint_precision.kendall import kendall
from apps.joint_precision.problem import recover_correlation
from apps.joint_precision.release import forecast, release_correlation, sensitivity
from privacy.accounting.budget import Policy
from privacy.mechanisms.gaussian import gaussian_sigma
from sim.grid import LocalGrid, run_local
from strategies.core import wire
from strategies.core.base import StudyError
from strategies.joint_precision.messages import read_step_order

STUDY = "joint-precision"
SMALL = {"variables": 6, "blocks": 2, "samples": "50"}
SOUND = {**SMALL, "privacy": "sound", "epsilon": 2.0, "delta": 1e-6}


def overheard(settings, data=None, seed=1, nodes=None):
    """Run the study; return its result and every (partition, message, reply) on the wire."""
    heard = []

    class Overheard(type(apps.client_app)):
        def __call__(self, message, context):
            reply = super().__call__(message, context)
            heard.append((context.node_config.get("partition-id", -1), message, reply))
            return reply

    run_config = make_run_config(STUDY, settings, data=data, seed=seed)
    clients = int(run_config[f"{STUDY}.clients"])
    nodes = nodes or [
        {"partition-id": i, "num-partitions": clients, "simulation": True} for i in range(clients)
    ]
    run_local(apps.server_app, Overheard(), nodes, run_config)
    return heard


# --- none: what the server can do ----------------------------------------------------------------


@pytest.mark.parametrize("privacy", ["none", "paper"])
@pytest.mark.parametrize("which", [0, -1])
def test_one_message_gives_away_the_correlation_matrix_and_every_count(privacy, which):
    settings = {**SMALL, "screening": False, "privacy": privacy, "margins": "gaussian"}
    heard = overheard(settings)
    steps = [h for h in heard if h[0] == 1 and "order" in h[1].content]
    _, asked, reply = steps[which]
    # What the server knows: its own message, and the reply.
    order = read_step_order(asked.content, 6)
    omega = order.blocks.unpack(wire.arrays(reply.content["arrays"])["omega"])
    found = recover_correlation(omega, order.blocks.unpack(order.point), order.ratio)

    # What only the client should know.
    table = synthetic_table(JointPrecisionConfig.from_settings(settings), 1, 1).values
    tau = np.array([[scipy.stats.kendalltau(x, y).statistic for x in table.T] for y in table.T])
    np.testing.assert_allclose(found, np.sin(np.pi / 2 * tau), atol=1e-10)
    pairs = 50 * 49 // 2
    counts = 2.0 / np.pi * np.arcsin(np.clip(found, -1.0, 1.0)) * pairs
    a, b = np.triu_indices(6, 1)
    np.testing.assert_allclose(counts[a, b], np.round(counts[a, b]), atol=1e-6)
    signs = np.array([np.sign(table[r] - table[s]) for r, s in combinations(range(50), 2)])
    np.testing.assert_array_equal(np.round(counts[a, b]), (signs.T @ signs)[a, b])


def test_with_screening_the_entries_of_the_correlation_matrix_travel_as_they_are():
    heard = overheard({**SMALL, "lambda1": 0.1})
    config = JointPrecisionConfig.from_settings(SMALL)
    _, asked, reply = next(h for h in heard if h[0] == 0 and "order" in h[1].content)
    assert asked.content["order"]["task"] == "screen"
    arrays = wire.arrays(reply.content["arrays"])
    tau = kendall(synthetic_table(config, 1, 0).values)[np.triu_indices(6, 1)]
    np.testing.assert_allclose(
        arrays["correlations"], np.sin(np.pi / 2 * tau[arrays["pairs"]]), atol=1e-14
    )


@pytest.mark.parametrize(("privacy", "claim"), [("none", "None: "), ("paper", "NOT PRIVATE")])
def test_log_result_and_report_say_that_the_server_can_recover_it(tmp_path, caplog, privacy, claim):
    result = run(STUDY, {**SMALL, "privacy": privacy}, out=tmp_path, report=privacy == "none")
    said = "recover every client's correlation matrix S exactly from a single message"
    assert said in caplog.text
    assert any(said in note for note in result.notes)
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    assert ledger["claim"].startswith(claim)
    assert said in ledger["claim"]
    assert ledger["epsilon"] == 0.0
    if privacy == "none":
        assert "from a single message" in (tmp_path / "report.html").read_text()


def test_pooled_says_that_raw_data_was_sent():
    result = run(STUDY, {**SMALL, "method": "pooled"})
    assert "raw data" in result.ledger["claim"]
    assert any("raw data" in note for note in result.notes)


# --- sound: the sensitivity ----------------------------------------------------------------------


def upper_tau(values: np.ndarray) -> np.ndarray:
    """Return tau-a by its definition."""
    n, p = values.shape
    first, second = np.triu_indices(n, 1)
    signs = np.sign(values[first] - values[second])
    return (signs.T @ signs)[np.triu_indices(p, 1)] * 2.0 / (n * (n - 1))


def moved(values: np.ndarray, row: int, other: np.ndarray) -> float:
    after = values.copy()
    after[row] = other
    return float(np.linalg.norm(upper_tau(values) - upper_tau(after)))


def test_the_statistic_is_tau_a_with_ties_counting_nothing():
    values = np.random.default_rng(0).integers(0, 3, size=(12, 5)).astype(float)
    table = kendall(values, variant="a")
    np.testing.assert_allclose(table[np.triu_indices(5, 1)], upper_tau(values), atol=1e-15)


def test_what_is_noised_is_that_statistic(monkeypatch):
    monkeypatch.setattr(shared.Release, "apply", lambda self, values, source: values)
    values = np.random.default_rng(1).integers(0, 3, size=(60, 5)).astype(float)
    config = JointPrecisionConfig.from_settings(SOUND)
    table = Table(values, tuple("abcde"), "ties")
    known = release_correlation(config, 1, Node("a", 0, None, None, True), table, Policy())
    expected = np.sin(np.pi / 2 * upper_tau(values))
    np.testing.assert_allclose(known.matrix[np.triu_indices(5, 1)], expected, atol=1e-14)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "p"), [(2, 2), (3, 4), (6, 5), (9, 8)])
def test_no_replaced_sample_moves_tau_farther_than_the_sensitivity(n, p, ties):
    rng = np.random.default_rng(n * p)
    bound = sensitivity(p, n)
    assert bound == 2.0 * p / n
    largest = 0.0
    for _ in range(400):
        values = rng.integers(0, 3, size=(n, p)) if ties else rng.normal(size=(n, p))
        values = values.astype(float)
        if rng.random() < 0.5:  # an outlier in some columns, to the other side in others
            values[0] = 10.0 * rng.choice([-1.0, 0.5, 1.0], size=p)
        other = rng.integers(-1, 4, size=p).astype(float)
        if rng.random() < 0.5:
            other = values[0] * rng.choice([-1.0, 1.0], size=p)
        largest = max(largest, moved(values, 0, other))
    assert largest <= bound + 1e-12
    assert largest > 0.5 * bound


@pytest.mark.parametrize(("n", "p"), [(2, 2), (5, 4), (7, 10), (40, 6)])
def test_an_outlier_turned_in_half_of_the_columns_moves_it_exactly_so_far(n, p):
    values = np.random.default_rng(1).normal(size=(n, p))
    values[0] = 100.0
    other = np.full(p, 100.0)
    other[: p // 2] = -100.0
    assert moved(values, 0, other) == pytest.approx(sensitivity(p, n), abs=1e-9)


def test_a_search_over_replacements_finds_nothing_worse():
    # Every order of the new sample among three others, in four columns: 7^4 places, ties included.
    base = np.random.default_rng(2).permuted(np.tile([1.0, 2.0, 3.0], (4, 1)), axis=1).T
    places = np.stack(np.meshgrid(*[np.arange(0.5, 4.0, 0.5)] * 4), axis=-1).reshape(-1, 4)
    taus = np.array([upper_tau(np.vstack([place, base])) for place in places[::3]])
    distances = np.linalg.norm(taus[:, None] - taus[None], axis=-1)
    assert distances.max() <= sensitivity(4, 4) + 1e-12


# --- sound: the noise ----------------------------------------------------------------------------


def released(monkeypatch, settings, seeds, node=None, values=None):
    """Return noisy minus clean tau (seeds, pairs), as it leaves the release."""
    config = JointPrecisionConfig.from_settings(settings)
    seen = []
    original = release.correlation_from_tau

    def watched(tau):
        seen.append(tau.copy())
        return original(tau)

    monkeypatch.setattr(release, "correlation_from_tau", watched)
    noise, events = [], []
    for seed in seeds:
        table = synthetic_table(config, seed, 1) if values is None else values
        known = release_correlation(
            config, seed, node or Node("a", 1, None, None, True), table, Policy()
        )
        np.testing.assert_array_equal(seen[-1], seen[-1].T)
        np.testing.assert_array_equal(np.diagonal(seen[-1]), 1.0)
        noise.append(seen[-1][np.triu_indices(len(seen[-1]), 1)] - upper_tau(table.values))
        (event,) = known.statistic.events
        events.append(event)
    return np.array(noise), events


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_the_noise_on_tau_has_the_deviation_that_the_budget_asks_for(monkeypatch, noise):
    settings = {**SOUND, "variables": 20, "samples": "30", "noise": noise}
    drawn, events = released(monkeypatch, settings, range(30))
    expected = gaussian_sigma(2.0, 1e-6, 2.0 * 20 / 30)
    if noise == "gaussian":
        assert events[0].sigma == pytest.approx(expected, rel=1e-12)
    else:  # through zCDP, and with a thousandth more sensitivity for the grid: 7 % more noise here
        assert expected < events[0].sigma < 1.1 * expected
    assert events[0].sensitivity == pytest.approx(40 / 30, rel=2e-3)
    standard = drawn.ravel() / events[0].sigma
    assert standard.size == 30 * 190
    assert abs(standard.mean()) < 4.0 / np.sqrt(standard.size)
    assert standard.std() == pytest.approx(1.0, abs=0.04)  # four standard errors
    assert scipy.stats.kstest(standard, "norm").pvalue > 1e-3
    # Independent between entries and between draws.
    rows = np.corrcoef(drawn) - np.eye(30)
    assert np.abs(rows).max() < 6.0 / np.sqrt(190)
    if noise == "discrete":
        clean = upper_tau(
            synthetic_table(JointPrecisionConfig.from_settings(settings), 0, 1).values
        )
        steps = (drawn[0] + clean) * 2.0**20
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)


@pytest.mark.parametrize(
    "extra",
    [{}, {"rounds": 2}, {"path": 4, "rounds": 30}, {"method": "glasso"}, {"method": "fused"}],
)
def test_one_noise_draw_a_client_whatever_the_rounds_and_points(monkeypatch, extra):
    drawn = []
    original = shared.generator

    def counting(seed, purpose, partition=0, server_round=0):
        drawn.append((purpose, partition))
        return original(seed, purpose, partition, server_round)

    monkeypatch.setattr(shared, "generator", counting)
    result = run(STUDY, {**SOUND, **extra})
    assert sorted(drawn) == [("release", 0), ("release", 1), ("release", 2)]
    for entry in result.ledger["clients"]:
        assert len(entry["events"]) == 1
        assert entry["epsilon"] == pytest.approx(2.0, abs=1e-6)


def test_the_ledger_of_the_run_says_what_was_spent_on_what(tmp_path):
    run(STUDY, {**SOUND, "samples": "50,60,90"}, out=tmp_path, report=False)
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    assert ledger["mode"] == "sound"
    assert "noised once" in ledger["claim"]
    assert ledger["epsilon"] == pytest.approx(2.0, abs=1e-6)
    for entry, count in zip(ledger["clients"], (50, 60, 90), strict=True):
        (event,) = entry["events"]
        assert event["what"] == f"Kendall's tau of 6 variables, {count} samples"
        assert event["sensitivity"] == pytest.approx(12.0 / count)
        assert event["sigma"] == pytest.approx(gaussian_sigma(2.0, 1e-6, 12.0 / count), rel=1e-12)
        assert event["mechanism"] == "gaussian"


# --- sound: nothing but the noisy tau ------------------------------------------------------------


def _stream(heard):
    """Return what a run sent, but for how long it took."""
    stream = []
    for partition, message, reply in heard:
        arrays = {
            f"{record}.{name}": wire.unpack(array).tobytes()
            for record, content in reply.content.array_records.items()
            for name, array in content.items()
        }
        metrics = dict(reply.content.metric_records.get("metrics", {}))
        metrics.pop("seconds", None)
        configs = {name: dict(record) for name, record in reply.content.config_records.items()}
        stream.append((partition, message.metadata.message_type, arrays, metrics, configs))
    return stream


@pytest.mark.parametrize("extra", [{}, {"path": 3}, {"method": "glasso"}])
def test_two_data_sets_with_the_same_noisy_tau_send_the_same_messages(tmp_path, monkeypatch, extra):
    folders = []
    for number in (0, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        rng = np.random.default_rng(number)
        for name in "abc":
            np.savez(folder / f"{name}.npz", X=rng.normal(size=(40, 5)) ** (1 + 2 * number))
        folders.append(folder)

    def fixed(self, values, source):
        return np.random.default_rng(7).uniform(-0.3, 0.3, values.size)

    settings = {"privacy": "sound", "epsilon": 2.0, **extra}
    different = [_stream(overheard(settings, data=folder)) for folder in folders]
    assert different[0] != different[1]
    monkeypatch.setattr(shared.Release, "apply", fixed)
    same = [_stream(overheard(settings, data=folder)) for folder in folders]
    assert len(same[0]) > 3
    assert same[0] == same[1]


def test_data_changed_after_enrolment_changes_no_message(tmp_path):
    replies = []
    for spoil in (False, True):
        folder = tmp_path / str(spoil)
        folder.mkdir()
        rng = np.random.default_rng(0)
        np.savez(folder / "a.npz", X=rng.normal(size=(30, 4)))
        run_config = make_run_config(STUDY, {"clients": 1, "privacy": "sound"}, data=folder)
        node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
        with LocalGrid(apps.client_app, [node], run_config) as grid:
            (number,) = grid.get_node_ids()
            grid.send_and_receive([Message(RecordDict(), number, "query.enrol")], timeout=10)
            if spoil:
                np.savez(folder / "a.npz", X=rng.normal(size=(30, 4)))
            order = RecordDict({"order": ConfigRecord({"round": 1, "task": "screen", "cut": 0.0})})
            (reply,) = grid.send_and_receive([Message(order, number, "train")], timeout=10)
            replies.append(wire.arrays(reply.content["arrays"])["correlations"].tobytes())
    assert replies[0] == replies[1]


def _ask(run_config, node_config, order):
    """Send one order straight to a node; return the reply."""
    content = RecordDict({"order": ConfigRecord({"round": 1, **order})})
    support = np.packbits(np.zeros(15, dtype=bool))
    arrays = {"point": np.zeros(15), "support": support, "nonzero": np.zeros(0)}
    content["arrays"] = wire.record(arrays)
    context = Context(1, 2, node_config, RecordDict(), run_config)
    with LocalGrid(apps.client_app, [], {}) as grid:
        message = grid.create_message(content, "train", 2, "1")
    return study_client.app(message, context)


def test_a_subsample_that_a_server_asks_for_all_the_same_is_not_made():
    node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
    run_config = make_run_config(STUDY, {"variables": 5, "blocks": 1, "privacy": "sound"})
    with pytest.raises(ValueError, match="another release"):
        _ask(run_config, node, {"task": "step", "ratio": 1.0, "replicate": 1})


# --- on a device ---------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path):
    """Three devices with their own files; node configs may be changed."""
    rng = np.random.default_rng(0)
    nodes = []
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", X=rng.normal(size=(40, 5)))
        nodes.append(
            {"data-path": str(tmp_path / f"{name}.npz"), "state-path": str(tmp_path / f"s-{name}")}
        )
    return nodes


def start(nodes, out, seed=1, **settings) -> RunResult:
    settings = {"clients": 3, "tolerance": 1e-9, **settings}
    run_config = make_run_config(STUDY, settings, seed=seed) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    return RunResult.load(out)


def test_a_device_draws_its_own_noise_and_the_same_after_a_restart(devices, tmp_path):
    sound = {"privacy": "sound", "epsilon": 2.0}
    first = start(devices, tmp_path / "1", **sound)
    # Another run with another seed on the restarted devices: the server's seed has no part in it.
    again = start(devices, tmp_path / "2", seed=99, **sound)
    assert first.arrays["sparse"].tobytes() == again.arrays["sparse"].tobytes()
    devices[1]["state-path"] = str(tmp_path / "elsewhere")
    other = start(devices, tmp_path / "3", **sound)
    smallest = [r.arrays["smallest_eigenvalue"] for r in (first, other)]
    np.testing.assert_array_equal(smallest[0][[0, 2]], smallest[1][[0, 2]])
    assert smallest[0][1] != smallest[1][1]


def test_another_budget_draws_other_noise_and_not_the_same_on_another_scale(monkeypatch, tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 8))
    table = Table(values, tuple("abcdefgh"), "test")
    node = Node("a", 0, tmp_path / "a.csv", tmp_path / "state", False)
    drawn = [
        released(monkeypatch, {**SOUND, "epsilon": epsilon}, [1], node, table)[0][0]
        for epsilon in (2.0, 2.5)
    ]
    assert np.std(drawn[0] / drawn[1]) > 0.1


def test_a_device_refuses_what_its_budget_does_not_hold_by_name(devices, tmp_path):
    devices[1]["max-epsilon"] = 1.5
    result = start(devices, tmp_path / "out", privacy="sound", epsilon=2.0)
    assert [client["name"] for client in result.clients] == ["a", "c"]
    assert result.arrays["sparse"].shape == (2, 5, 5)
    assert any("b: refused" in note and "max-epsilon 1.5" in note for note in result.notes)
    assert len(start(devices, tmp_path / "2", privacy="sound", epsilon=1.0).clients) == 3


def test_a_device_that_requires_privacy_refuses_a_run_without(devices, tmp_path):
    devices[2]["require-privacy"] = True
    result = start(devices, tmp_path / "out")
    assert [client["name"] for client in result.clients] == ["a", "b"]
    assert any("c: this device requires privacy='sound'" in note for note in result.notes)


def test_no_device_sends_its_raw_data(devices, tmp_path):
    with pytest.raises(StudyError, match=r"a: method='pooled' asks for the raw data, which never"):
        start(devices, tmp_path / "out", method="pooled")
    # Nor where the server asks for it in the middle of another method.
    run_config = make_run_config(STUDY, {"clients": 3})
    with pytest.raises(PermissionError, match="never leaves a device"):
        _ask(run_config, devices[0], {"task": "data"})


def test_raw_data_is_refused_where_privacy_is_required_in_a_simulation_too():
    nodes = [
        {"partition-id": i, "num-partitions": 2, "simulation": True, "require-privacy": i == 1}
        for i in range(2)
    ]
    heard = overheard({**SMALL, "clients": 2, "method": "pooled"}, nodes=nodes)
    sent = [h[0] for h in heard if "arrays" in h[2].content]
    assert sent == [0]


def test_subsamples_on_devices_need_no_partition(devices, tmp_path):
    result = start(devices, tmp_path / "out", path=3, subsamples=2, choose="stability")
    assert result.arrays["path_instability"].shape == (3,)


def test_the_server_never_sees_a_fingerprint_of_the_data(devices, tmp_path):
    result = start(devices, tmp_path / "out", privacy="sound")
    names = {e["name"] for entry in result.ledger["clients"] for e in entry["events"]}
    assert names == {"statistic"}


# --- the forecast --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "epsilon", "verdict"),
    [
        (10_000, 5.0, "useful graphs can be expected"),
        (1000, 5.0, "the strong edges only"),
        (150, 10.0, "next to nothing"),
    ],
)
def test_the_forecast_says_what_noise_will_leave(count, epsilon, verdict):
    config = JointPrecisionConfig(privacy="sound", epsilon=epsilon)
    text = forecast(config, 54, [2 * count, count])
    noise = gaussian_sigma(epsilon, config.delta, 2.0 * 54 / count)
    assert f"n = {count} samples of p = 54" in text
    assert f"epsilon = {epsilon:g}" in text
    assert f"standard deviation {noise:.2g}" in text
    assert verdict in text
    needed = int(np.ceil(50 * 54 * gaussian_sigma(epsilon, config.delta, 1.0)))
    assert f"{needed:,} is needed" in text


def test_the_forecast_is_made_before_the_run_and_kept(caplog):
    result = run(STUDY, SOUND)
    assert any(
        note.startswith("Forecast for privacy='sound': with n = 50") for note in result.notes
    )
    forecasts = [i for i, r in enumerate(caplog.records) if "Forecast" in r.getMessage()]
    rounds = [i for i, r in enumerate(caplog.records) if r.getMessage().startswith("round ")]
    assert forecasts
    assert not rounds or forecasts[0] < rounds[0]
    assert not any("recover every client" in note for note in result.notes)


def test_the_sampling_deviation_in_the_forecast_is_kendalls():
    text = forecast(JointPrecisionConfig(privacy="sound"), 6, [50])
    rng = np.random.default_rng(0)
    taus = [upper_tau(rng.normal(size=(50, 2)))[0] for _ in range(2000)]
    stated = float(text.split("sampling alone has ")[1].split(")")[0])
    assert stated == pytest.approx(np.std(taus), rel=0.06)
