"""What leaves a client, what can be made of it, and that it is what the ledger says."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from flwr.app import ConfigRecord, Message, RecordDict

from tests.apps.joint_precision.overhearing import SMALL, STUDY, ask_client, overheard
from trellis import apps
from trellis.apps import run
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.data import synthetic_table
from trellis.apps.joint_precision.kendall import kendall
from trellis.apps.joint_precision.problem import recover_correlation
from trellis.privacy.accounting.budget import PrivacyRefused
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.messages import read_step_order

# --- none: what the server can do ----------------------------------------------------------------


@pytest.mark.parametrize("privacy", ["none", "paper"])
@pytest.mark.parametrize("which", [0, -1])
def test_one_message_gives_away_the_correlation_matrix_and_every_count(privacy, which):
    settings = {**SMALL, "screening": False, "privacy": privacy, "margins": "gaussian"}
    heard = overheard(settings)
    steps = [h for h in heard if h[0] == 1 and h[1].metadata.message_type == "train"]
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
    of_screening = (h for h in heard if h[1].metadata.message_type == "train.screen")
    reply = next(reply for client, _, reply in of_screening if client == 0)
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


# --- dp: nothing in the clear -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["group", "fused", "pooled", "glasso"])
@pytest.mark.parametrize("kind", ["train", "train.screen"])
def test_nothing_is_sent_in_the_clear_under_privacy_whatever_a_server_asks(method, kind):
    node = {"partition-id": 0, "num-partitions": 3, "simulation": True}
    run_config = make_run_config(STUDY, {**SMALL, "privacy": "dp", "method": method})
    with pytest.raises((PrivacyRefused, ValueError), match=r"in the clear|no screening"):
        ask_client(run_config, node, kind, cut=0.0, ratio=1.0)


@pytest.mark.parametrize("method", ["glasso", "clime", "pooled", "one-shot"])
def test_only_the_methods_that_screen_answer_a_screening(method):
    node = {"partition-id": 0, "num-partitions": 3, "simulation": True}
    run_config = make_run_config(STUDY, {**SMALL, "method": method})
    with pytest.raises(ValueError, match="no screening"):
        ask_client(run_config, node, "train.screen", cut=0.0)


def test_data_changed_after_enrolment_changes_no_message(tmp_path):
    replies = []
    for spoil in (False, True):
        folder = tmp_path / str(spoil)
        folder.mkdir()
        rng = np.random.default_rng(0)
        np.savez(folder / "a.npz", X=rng.normal(size=(30, 4)))
        run_config = make_run_config(STUDY, {"clients": 1}, data=folder)
        node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
        with LocalGrid(apps.client_app, [node], run_config) as grid:
            (number,) = grid.get_node_ids()
            grid.send_and_receive([Message(RecordDict(), number, "query.enrol")], timeout=10)
            if spoil:
                np.savez(folder / "a.npz", X=rng.normal(size=(30, 4)))
            asked = RecordDict({"config": ConfigRecord({"server-round": 1, "cut": 0.0})})
            (reply,) = grid.send_and_receive([Message(asked, number, "train.screen")], timeout=10)
            replies.append(wire.arrays(reply.content["arrays"])["correlations"].tobytes())
    assert replies[0] == replies[1]


def test_a_subsample_that_a_server_asks_for_all_the_same_is_not_made():
    node = {"partition-id": 0, "num-partitions": 1, "simulation": True}
    run_config = make_run_config(STUDY, {"variables": 5, "blocks": 1})
    with pytest.raises(ValueError, match="declares no subsamples"):
        ask_client(run_config, node, ratio=1.0, replicate=1)
