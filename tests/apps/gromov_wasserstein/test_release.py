"""What a client sends for its embeddings, and what that costs."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from trellis.apps.common.node import Node
from trellis.apps.common.settings import ConfigError
from trellis.apps.gromov_wasserstein.config import GromovWassersteinConfig
from trellis.apps.gromov_wasserstein.release import (
    code_of,
    encode_rows,
    half_of,
    release_rows,
    spent,
    statement,
    warnings,
)
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.device import log
from trellis.privacy.mechanisms.multibit import log_probability


def settings(**changes) -> GromovWassersteinConfig:
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return GromovWassersteinConfig.from_settings({"privacy": "dp", **named})


def rows_of(*sizes: int, h: int = 4, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(h), n) for n in sizes]


def device(tmp_path, name: str = "site") -> Node:
    return Node(name, 0, tmp_path / "graphs.npz", tmp_path / "state", simulated=False)


SIMULATED = Node("client-1", 0, None, None, simulated=True)


def test_a_graph_s_budget_is_shared_by_its_nodes_and_a_node_s_is_not():
    assert code_of(settings(epsilon=12.0), 8, 6).eps_row == 2.0
    assert code_of(settings(epsilon=12.0, budget_per="node"), 8, 6).eps_row == 12.0
    assert spent(settings(epsilon=12.0), [3, 6]) == 12.0
    assert spent(settings(epsilon=12.0, budget_per="node"), [3, 6]) == 72.0


def test_the_number_of_bits_is_the_best_or_the_one_that_is_set():
    assert code_of(settings(epsilon=44.0), 8, 2).m == 8  # 22 / 2.18, but there are 8
    assert code_of(settings(epsilon=10.0), 8, 2).m == 2
    assert code_of(settings(epsilon=10.0, bits=5), 8, 2).m == 5
    with pytest.raises(ValueError, match="bits=9: the rows of an embedding have 8 entries"):
        code_of(settings(bits=9), 8, 2)


@pytest.mark.parametrize("estimator", ["raw", "double"])
def test_a_graph_is_never_more_probable_than_its_budget_allows(estimator):
    # All codes of a graph of 2 nodes with rows of 2 entries, under several embeddings.
    config = settings(epsilon=1.5, estimator=estimator, bits=1)
    code = code_of(config, 2, 2)
    parts = [half_of(config, code)] * 2 if estimator == "double" else [code]
    single = [np.array(c) for c in itertools.product((-1, 0, 1), repeat=2) if np.abs(c).sum() == 1]
    graphs = [np.array(rows) for rows in itertools.product(single, repeat=2)]
    corners = [np.array([a, b], dtype=float) for a in ([1, 0], [0, 1]) for b in ([1, 0], [0, 1])]
    worst = 0.0
    for x, other in itertools.product(corners, repeat=2):
        for seen in itertools.product(graphs, repeat=len(parts)):
            ratio = sum(
                log_probability(codes, x, part).sum() - log_probability(codes, other, part).sum()
                for codes, part in zip(seen, parts, strict=True)
            )
            worst = max(worst, ratio)
    assert worst == pytest.approx(1.5, abs=1e-9)


def test_codes_are_bytes_and_have_m_bits_a_row():
    config = settings(epsilon=30.0)
    rng = np.random.default_rng(1)
    found = encode_rows(config, rows_of(3, h=6)[0], rng)["codes"]
    assert found.dtype == np.int8
    assert (np.abs(found).sum(axis=1) == code_of(config, 6, 3).m).all()


def test_the_paper_s_encoder_sends_m_entries_of_a_whole_graph():
    config = settings(privacy="paper", epsilon=5.0)
    code = code_of(config, 4, 7)
    assert code.bit_budget == pytest.approx(5.0 / (2 * 7))  # epsilon / (m n)
    found = encode_rows(config, rows_of(7)[0], np.random.default_rng(1))["codes"]
    assert found.shape == (7, 4)
    assert np.abs(found).sum() == 2


def test_simplex_distances_need_two_bits_and_say_what_to_do():
    with pytest.raises(ValueError, match="raise epsilon, set bits=2, or use estimator='double'"):
        code_of(settings(estimator="simplex", epsilon=1.0), 4, 5)
    assert code_of(settings(estimator="simplex", epsilon=1.0, bits=2), 4, 5).m == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0: must be > 0"),
        ({"epsilon": -1.0}, "epsilon=-1.0: must be > 0"),
        ({"task": "graph", "width": 4, "bits": 5}, "bits=5: a row has width=4"),
        ({"privacy": "none", "estimator": "double"}, "estimator has no effect"),
        ({"privacy": "paper", "estimator": "simplex"}, "too few entries"),
        ({"estimator": "double", "distance": "cosine"}, "set distance='euclidean'"),
        ({"estimator": "simplex", "bits": 1}, "needs two coordinates"),
        ({"model": "cnn"}, "model='cnn': use one of gcn, gin"),
        ({"downstream": "svm,tree"}, "'tree' is not one of svm"),
        ({"alpha": 1.5}, "alpha=1.5: must be between 0 and 1"),
        ({"dirichlet": 0.0}, "dirichlet=0.0: must be > 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(changes, told):
    with pytest.raises(ConfigError, match=told):
        settings(**changes)


def test_without_privacy_rows_are_sent_as_they_are():
    rows = rows_of(2, 5)
    found, events = release_rows(settings(privacy="none"), 1, SIMULATED, rows, 3)
    np.testing.assert_array_equal(found["rows"], np.concatenate(rows))
    assert events == ()


def test_a_simulation_repeats_itself_and_rounds_differ():
    config, rows = settings(epsilon=50.0), rows_of(4, 9)
    first, again = (release_rows(config, 1, SIMULATED, rows, 3)[0]["codes"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    later = release_rows(config, 1, SIMULATED, rows, 4)[0]["codes"]
    assert np.any(first != later)


def test_a_device_s_bits_do_not_come_from_the_seed_and_every_answer_is_entered(tmp_path):
    config, rows, node = settings(epsilon=2.0), rows_of(4, 9), device(tmp_path)
    policy = Policy(max_epsilon=5.0)
    codes = []
    for number in range(2):  # two runs
        with log.working_on(log.Occasion(str(number), "gromov-wasserstein", "query.embed", "")):
            codes.append(release_rows(config, 1, node, rows, 1, policy))
    assert np.any(codes[0][0]["codes"] != codes[1][0]["codes"])
    kept = json.loads((tmp_path / "state" / "ledger.json").read_text())
    assert "multi-bit" in json.dumps(kept)
    with pytest.raises(PrivacyRefused):
        release_rows(config, 1, node, rows, 1, policy)
    (event,) = codes[0][1]
    assert event.epsilon == 2.0
    assert event.delta == 0.0


@pytest.mark.parametrize("per", ["graph", "node"])
def test_a_run_gets_its_embeddings_from_a_device_once(per, tmp_path):
    config, rows = settings(epsilon=2.0, budget_per=per), rows_of(4, 9)
    release_rows(config, 1, device(tmp_path), rows, 1)
    with pytest.raises(PrivacyRefused, match="declared"):
        release_rows(config, 1, device(tmp_path), rows, 1)


def test_a_device_that_requires_privacy_refuses_to_send_rows(tmp_path):
    for mode in ("none", "paper"):
        with pytest.raises(PrivacyRefused):
            release_rows(
                settings(privacy=mode),
                1,
                device(tmp_path),
                rows_of(3),
                1,
                Policy(require_privacy=True),
            )


def test_what_is_not_covered_is_said():
    assert "updates of training" in statement(settings(privacy="paper"))["not_covered"]
    for more in ({}, {"method": "fedavg"}):  # nothing but what is declared public is left out
        assert "updates of training" not in statement(settings(**more))["not_covered"]
    assert "nothing is trained" in statement(settings())["claim"]
    assert "noisy secure sums" in statement(settings(method="fedavg"))["claim"]
    told = warnings(settings(budget_per="node", epsilon=3.0))
    assert any("a graph of n nodes spends n times" in note for note in told)
    assert any("Nothing is trained" in note for note in told)
    assert any("every client's updates" in n for n in warnings(settings(privacy="paper")))
    assert len(warnings(settings(epsilon=1.0))) == 1
    assert warnings(settings(epsilon=1.0, method="fedavg")) == []
    assert any("protects nobody in practice" in note for note in warnings(settings(epsilon=30.0)))
    assert math.isfinite(spent(settings(), [1]))
