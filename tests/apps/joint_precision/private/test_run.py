"""Runs with one noisy sum: in process, and on devices that keep what is theirs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.joint_precision.overhearing import STUDY, ask_client, overheard
from trellis import apps
from trellis.apps import run
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.private.federation import summed
from trellis.apps.joint_precision.report.page import sections
from trellis.privacy.accounting.budget import PrivacyRefused
from trellis.sim.grid import run_local

SUMMED = {
    "variables": 9, "blocks": 3, "samples": "40,50,40,50,40,50", "clients": 6, "privacy": "dp",
    "epsilon": 50.0, "lambda1": 0.05, "path": 5,
}  # fmt: skip


def bits(result: RunResult) -> bytes:
    return b"".join(result.arrays[name].tobytes() for name in sorted(result.arrays))


def test_private_is_one_sum_and_results_on_the_devices():
    config = JointPrecisionConfig(privacy="dp")
    assert config.sums
    assert config.at_home
    assert not JointPrecisionConfig(privacy="none").sums
    glasso = JointPrecisionConfig(privacy="dp", method="glasso")
    assert not glasso.sums
    assert glasso.at_home
    pooled = JointPrecisionConfig(privacy="dp", method="pooled")
    assert pooled.sums
    assert not pooled.at_home


def test_a_run_makes_a_consensus_and_every_clients_own_graph():
    result = run(STUDY, SUMMED)
    assert result.arrays["sparse"].shape == (6, 9, 9)
    assert result.arrays["consensus"].shape == (9, 9)
    assert np.all(result.arrays["gathered"])
    assert any("gathered for evaluation" in note for note in result.notes)
    assert any(note.startswith("Forecast: with 6 clients") for note in result.notes)
    for name in ("auc", "consensus-auc", "mcc", "noise-of-tau", "using-consensus", "alone-mcc"):
        assert np.isfinite(result.headline[name])
    assert result.headline["auc"] > 0.6
    assert 0.0 < result.ledger["epsilon"] <= 50.0
    events = [event for entry in result.ledger["clients"] for event in entry["events"]]
    assert {event["mechanism"] for event in events} == {"summed-gaussian"}
    assert len(events) == 6


def test_the_report_says_what_is_private_and_what_was_gathered(tmp_path):
    run(STUDY, {**SUMMED, "held-out": 0.2}, out=tmp_path)
    text = (tmp_path / "report.html").read_text()
    for words in (
        "The consensus, from one noisy sum", "gathered for evaluation", "Held-out score",
        "How far clients trust the consensus", "What privacy left",
    ):  # fmt: skip
        assert words in text
    assert (tmp_path / "graphs").is_dir()


def test_the_sum_is_that_of_the_message_free_functions():
    """With next to no noise, tau is what the functions give on the same tables."""
    from trellis.apps.joint_precision.data import synthetic_table
    from trellis.apps.joint_precision.private.consensus import consensus

    result = run(STUDY, {**SUMMED, "epsilon": 1e9})
    config = JointPrecisionConfig.from_settings({**SUMMED, "epsilon": 1e9})
    tables = [synthetic_table(config, 1, k).values for k in range(6)]
    wanted = consensus(*summed(tables), 3 * 40 + 3 * 50, 9, 0.0)
    np.testing.assert_allclose(
        result.arrays["consensus_correlation"], wanted.correlation, atol=1e-3
    )


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    first, again, other = (run(STUDY, SUMMED, seed=seed) for seed in (3, 3, 4))
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


def test_a_client_gets_seven_messages_at_most_and_three_more_for_a_score():
    for extra, most in (({}, 7), ({"held-out": 0.3}, 10)):
        heard = overheard({**SUMMED, **extra})
        for client in range(6):
            kinds = [message.metadata.message_type for c, message, _ in heard if c == client]
            assert len(kinds) == most
            masked = [kind for kind in kinds if kind.endswith("secagg_masked")]
            scored = ["evaluate.secagg_masked"] if most == 10 else []
            assert masked == ["train.secagg_masked", *scored]


def test_the_held_out_score_has_a_part_of_the_budget():
    result = run(STUDY, {**SUMMED, "held-out": 0.3, "samples": "60"})
    assert 0.0 < result.headline["held-out-accuracy"] < 1.2
    assert result.headline["held-out-noise"] > 0.0
    assert "helped" in result.headline
    assert result.ledger["epsilon"] <= 50.0
    entry = result.ledger["clients"][0]
    rates = [(event["sensitivity"] / event["sigma"]) ** 2 for event in entry["events"]]
    assert rates[1] / sum(rates) == pytest.approx(0.1, rel=1e-3)
    assert "a second one" in result.ledger["claim"]


def test_pooled_gives_everyone_the_consensus():
    result = run(STUDY, {**SUMMED, "method": "pooled"})
    for matrix in result.arrays["sparse"]:
        np.testing.assert_array_equal(matrix, result.arrays["consensus"])
    assert not np.any(result.arrays["gathered"])


def test_fused_runs_too():
    trust = run(STUDY, {**SUMMED, "method": "fused"}).arrays["trust"]
    assert np.all(np.isinf(trust[:, 1]))


def test_glasso_sends_nothing_and_every_client_learns_on_its_device():
    settings = {**SUMMED, "method": "glasso"}
    settings.pop("epsilon")
    result = run(STUDY, settings)
    heard = overheard(settings)
    assert {message.metadata.message_type for _, message, _ in heard} == {
        "query.enrol",
        "query.personal",
    }
    assert np.all(result.arrays["gathered"])
    assert "consensus" not in result.arrays
    assert result.ledger["epsilon"] == 0.0
    assert result.headline["mcc"] == result.headline["alone-mcc"]
    # What a client is compared with in the private joint methods.
    joint = run(STUDY, SUMMED)
    assert result.headline["alone-mcc"] == joint.headline["alone-mcc"]


# --- devices -------------------------------------------------------------------------------------


def devices(folder, change=False):
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, 5))
    nodes = []
    for name in "abcd":
        values = rng.normal(size=(40, 5)) @ mixing
        if change and name == "b":
            values[7] = 100.0 * rng.normal(size=5)
        np.savez(folder / f"{name}.npz", X=values)
        nodes.append(
            {"data-path": str(folder / f"{name}.npz"), "state-path": str(folder / f"s-{name}")}
        )
    return nodes


ON_DEVICES = {"clients": 4, "privacy": "dp", "epsilon": 3.0, "held-out": 0.25, "timeout": 30.0}


def test_devices_keep_their_own_graphs_and_send_none(tmp_path):
    nodes, out = devices(tmp_path), tmp_path / "out"
    run_config = make_run_config(STUDY, ON_DEVICES, seed=1) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    result = RunResult.load(out)
    assert not np.any(result.arrays["gathered"])
    for matrix in result.arrays["sparse"]:
        np.testing.assert_array_equal(matrix, result.arrays["consensus"])
    assert any("kept it" in note for note in result.notes)
    assert result.ledger["epsilon"] <= 3.0
    for name in "abcd":
        (kept,) = (tmp_path / f"s-{name}" / "results").iterdir()
        assert {path.name for path in kept.iterdir()} == {
            "result.npz", "model.json", "graph.graphml", "edges.csv", "result.html",
        }  # fmt: skip
        with np.load(kept / "result.npz") as own:
            assert own["sparse"].shape == (5, 5)
            assert np.all(np.linalg.eigvalsh(own["precision"]) > 0.0)


def test_devices_that_learn_alone_send_none_of_it(tmp_path):
    nodes, out = devices(tmp_path), tmp_path / "out"
    settings = {k: v for k, v in ON_DEVICES.items() if k != "epsilon"} | {"method": "glasso"}
    run_config = make_run_config(STUDY, settings, seed=1) | {"out": str(out)}
    run_local(apps.server_app, apps.client_app, nodes, run_config)
    result = RunResult.load(out)
    assert set(result.arrays) == {"gathered"}
    assert result.status == "completed"
    assert any("kept it" in note for note in result.notes)
    assert "keeps it" in str(sections(result))
    for name in "abcd":
        (kept,) = (tmp_path / f"s-{name}" / "results").iterdir()
        with np.load(kept / "result.npz") as own:
            assert own["sparse"].shape == (5, 5)
            np.testing.assert_array_equal(own["sparse"], own["alone"])


def _told(heard):
    """Return what replies say but for keys, shares and masked vectors, which are random."""
    told = []
    for _, message, reply in heard:
        if reply.has_error():
            told.append((message.metadata.message_type, "error"))
            continue
        records = {k: v for k, v in reply.content.items() if k not in ("secagg", "masked")}
        told.append((message.metadata.message_type, repr(sorted(records.items()))))
    return told


def test_one_changed_sample_changes_nothing_but_the_masked_vectors(tmp_path):
    streams = []
    for change in (False, True):
        folder = tmp_path / str(change)
        folder.mkdir()
        streams.append(_told(overheard(ON_DEVICES, nodes=devices(folder, change))))
    names = [kind for kind, _ in streams[0]]
    assert "query.personal" in names
    assert len(names) == 40
    # Paths of the two folders stand in no reply; the names of the clients do.
    assert streams[0] == streams[1]


def test_a_device_that_cannot_make_its_graph_says_the_same(tmp_path, monkeypatch):
    from trellis.apps.joint_precision.private import device, own

    def fails(*args, **kwargs):
        raise ValueError("sample 7 is strange")

    replies = []
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(device, "own_precision", fails)
            monkeypatch.setattr(own, "choose_trust", fails)
        folder = tmp_path / str(broken)
        folder.mkdir()
        heard = overheard(ON_DEVICES, nodes=devices(folder))
        replies.append(_told(heard))
    assert any(kind == "query.personal" for kind, _ in replies[0])
    assert replies[0] == replies[1]
    assert "strange" not in str(replies)


def test_a_reply_of_a_clients_own_is_refused():
    node = {"partition-id": 0, "num-partitions": 6, "simulation": True}
    with pytest.raises(PrivacyRefused, match="would be in the clear"):
        ask_client(make_run_config(STUDY, SUMMED), node, ratio=1.0)


def test_the_ledger_of_the_claim_names_what_is_trusted():
    result = run(STUDY, {**SUMMED, "epsilon": 1.0})
    assert "count" in result.ledger["trusted"]
    assert "raw samples" in result.ledger["claim"]
