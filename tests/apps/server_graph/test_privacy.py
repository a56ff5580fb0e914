"""What a run claims: both formulas, the account, warnings, and an attack on one round."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from tests.apps.server_graph.federations import of_method
from trellis.apps import run
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.losses import Logistic
from trellis.apps.server_graph.methods import NEIGHBOUR_LEARNS
from trellis.apps.server_graph.problem import draw_batches, local_steps
from trellis.apps.server_graph.release import statement
from trellis.apps.server_graph.spending import corrected_epsilon, paper_epsilon
from trellis.privacy.audit import audit
from trellis.strategies.server_graph.exchange import HybridServer, neighbours

STUDY = "server-graph"
PAPER = ServerGraphConfig(clip=1.0, step=0.1, sigma=0.2)
SMALL = {
    "servers": 4, "topology": "star", "clients": 12, "samples": "20", "rounds": 6, "clip": 1.0,
    "secure-aggregation": "off", "sigma": 0.2, "epsilon": 1e4,
}  # fmt: skip


def study(settings, **options):
    options.setdefault("report", False)
    return run(STUDY, settings, **options)


# --- the formulas --------------------------------------------------------------------------------


def test_the_papers_epsilon_is_1_4_after_one_iteration_and_7000_after_a_hundred():
    assert paper_epsilon(PAPER, 1) == pytest.approx(1.414, abs=1e-3)
    assert paper_epsilon(PAPER, 100) == pytest.approx(7.14e3, rel=1e-3)


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("server_round", [1, 2, 100])
def test_the_corrected_epsilon_is_sqrt_M_times_the_papers_where_releases_just_add(
    size, server_round
):
    assert corrected_epsilon(PAPER, server_round, size) == pytest.approx(
        math.sqrt(size) * paper_epsilon(PAPER, server_round)
    )


def by_accountant(rho, delta):
    """Epsilon of a Gaussian release that is rho-zCDP, by another library and its grid of orders."""
    orders = [1.0 + x for x in np.geomspace(1e-3, 1e4, 4000)]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent(1.0 / math.sqrt(2.0 * rho)))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("steps", [1, 4])
def test_many_small_releases_are_counted_by_concentrated_privacy(releases, steps):
    config = ServerGraphConfig(clip=0.05, step=0.01, sigma=2.0, local_steps=steps, delta=1e-6)
    size, rounds = 5, 200
    # Laplace of scale b, an l1 sensitivity of sqrt(M) 2 mu B E j in round j.
    each = [
        math.sqrt(size) * 2 * 0.01 * 0.05 * steps * j / (2.0 / math.sqrt(2.0))
        for j in range(1, rounds + 1)
    ]
    rho = releases * sum(0.5 * e**2 for e in each)
    pure = releases * sum(each)
    found = corrected_epsilon(config, rounds, size, releases)
    assert found == pytest.approx(by_accountant(rho, 1e-6), rel=1e-3)
    assert found < 0.9 * pure
    # and the sum where that is less
    assert corrected_epsilon(config, 1, size, releases) == pytest.approx(releases * each[0])


def test_epsilon_never_falls_and_more_steps_cost_more():
    found = [corrected_epsilon(PAPER, i, 2) for i in range(1, 60)]
    assert np.all(np.diff(found) > 0.0)
    more = ServerGraphConfig(clip=1.0, step=0.1, sigma=0.2, local_steps=3)
    assert corrected_epsilon(more, 1, 2) == pytest.approx(3 * found[0])
    for nothing in ({"clip": 0.0}, {"clip": 1.0, "sigma": 0.0}):
        assert corrected_epsilon(ServerGraphConfig(**nothing), 1, 2) == math.inf
        assert paper_epsilon(ServerGraphConfig(**nothing), 1) == math.inf


# --- in a run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["hybrid", "iid"])
@pytest.mark.parametrize("privacy", ["none", "paper"])
def test_every_round_and_the_ledger_carry_both(method, privacy, tmp_path):
    result = study(of_method(SMALL, method, privacy), out=tmp_path)
    config = ServerGraphConfig.from_settings(of_method(SMALL, method))
    releases = 3 if method == "iid" else 1  # the hub of a star of four has three neighbours
    for i, row in enumerate(result.metrics, start=1):
        assert row["epsilon-paper"] == pytest.approx(paper_epsilon(config, i))
        assert row["epsilon-corrected"] == pytest.approx(corrected_epsilon(config, i, 2, releases))
    if method == "iid":
        first = result.metrics[0]
        assert first["epsilon-corrected"] == pytest.approx(
            3 * math.sqrt(2.0) * first["epsilon-paper"]
        )
    ledger = json.loads((tmp_path / "run.json").read_text())["ledger"]
    last = result.metrics[-1]
    assert ledger["epsilon_paper"] == pytest.approx(last["epsilon-paper"])
    assert ledger["epsilon_corrected"] == pytest.approx(last["epsilon-corrected"])
    assert ledger["mode"] == privacy
    assert NEIGHBOUR_LEARNS[method] in ledger["claim"]
    if privacy == "none":
        assert ledger["clients"] == []
        return
    total = last["epsilon-paper"]
    assert [entry["name"] for entry in ledger["clients"]] == [f"server-{p}" for p in range(4)]
    assert all(entry["epsilon"] == pytest.approx(total) for entry in ledger["clients"])
    assert ledger["epsilon"] == pytest.approx(total)
    assert ledger["delta"] == config.delta
    assert ledger["adversary"] == "All other servers together."
    assert "one client" in ledger["neighbouring"]


@pytest.mark.parametrize("method", ["none", "masked", "fedavg"])
def test_methods_that_claim_no_epsilon_report_none(method):
    result = study(of_method(SMALL, method))
    assert not any(name.startswith("epsilon") for name in result.metrics[-1])
    assert not any(name.startswith("epsilon") for name in result.headline)
    assert "epsilon_paper" not in result.ledger
    assert result.notes == []


def test_above_ten_a_warning_with_the_numbers_is_logged_and_kept(caplog):
    result = study(of_method(SMALL, "hybrid"))
    config = ServerGraphConfig.from_settings(of_method(SMALL, "hybrid"))
    printed, real = paper_epsilon(config, 6), corrected_epsilon(config, 6, 2)
    assert real > 10.0
    (note,) = result.notes
    assert f"after 6 it is {printed:.3g} by the paper's formula and {real:.3g}" in note
    assert note in caplog.text


def test_below_ten_there_is_none(caplog):
    settings = {**of_method(SMALL, "hybrid"), "sigma": 5.0}
    result = study(settings)
    assert corrected_epsilon(ServerGraphConfig.from_settings(settings), 6, 2) < 10.0
    assert result.notes == []
    assert "epsilon" not in caplog.text


@pytest.mark.parametrize("method", ["hybrid", "iid"])
def test_without_a_clip_no_epsilon_exists_and_that_is_said(method, caplog):
    result = study({**of_method(SMALL, method), "clip": 0.0})
    (note,) = result.notes
    assert "no epsilon at all" in note
    assert note in caplog.text
    assert "epsilon-corrected" not in result.metrics[-1]
    assert "epsilon_paper" not in result.ledger


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip": 0.0}, "sigma > 0, and clip > 0.* clip=0"),
        ({"sigma": 0.0}, "sigma > 0, and clip > 0.* not sigma=0"),
        *(
            ({"method": method}, f"method='{method}': .*'paper' has method=hybrid or iid")
            for method in ("none", "masked", "fedavg")
        ),
        ({"norm_bound": 1.0}, "norm-bound has no effect"),
        ({"average": 0.1}, "average has no effect"),
    ],
    ids=str,
)
def test_a_claim_that_nothing_stands_behind_is_refused(settings, words):
    good = {"privacy": "paper", "method": "hybrid", "clip": 1.0, "sigma": 0.2, "epsilon": 1e5}
    ServerGraphConfig(**good)
    with pytest.raises(ConfigError, match=words):
        ServerGraphConfig(**(good | settings))


def test_a_ridge_that_drives_models_apart_is_refused():
    """The sensitivity grows by 2 mu B a step only where |1 - mu rho| <= 1."""
    ServerGraphConfig(step=2.0, ridge=1.0)
    with pytest.raises(ConfigError, match=r"step=2\.1: with ridge=1\.0 .*step \* ridge <= 2"):
        ServerGraphConfig(step=2.1, ridge=1.0)


def test_what_is_not_covered_is_said():
    for method in ("hybrid", "iid"):
        said = statement(ServerGraphConfig(method=method, clip=1.0, privacy="paper"))
        for words in ("The server itself", "its clients", "floating-point", "re-homed"):
            assert words in said["not_covered"]


# --- the bound on a gradient ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_one_client_moves_its_servers_model_by_no_more_than_the_clip_allows(tmp_path, steps):
    rng = np.random.default_rng(0)
    tables = [(rng.normal(size=(20, 2)), rng.choice([-1.0, 1.0], 20)) for _ in range(3)]
    B, mu = 0.5, 0.1
    settings = {
        "servers": 1, "topology": "complete", "method": "none", "rounds": 1, "batch": 0,
        "step": mu, "local-steps": steps, "ridge": 0.0, "standardise": "none",
    }  # fmt: skip

    def psi(outlier, clip):
        folder = tmp_path / f"{outlier}-{clip}-{steps}"
        folder.mkdir()
        for k, (X, y) in enumerate(tables):
            scale = outlier if k == 1 else 1.0
            np.savez(folder / f"site{k}.npz", X=scale * X, y=y)
        return study({**settings, "clip": clip}, data=folder).arrays["centroid"]

    clipped = psi(1e9, B)
    moved = np.linalg.norm(clipped - psi(1.0, B))
    assert 0.0 < moved <= 2.0 * mu * B * steps / 3.0 + 1e-12
    assert np.linalg.norm(clipped) <= mu * B * steps + 1e-12
    assert np.linalg.norm(psi(1e9, 0.0) - psi(1.0, 0.0)) > 1e6


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_for_one_transcript_two_data_sets_give_models_that_part_by_2_mu_B_E_a_round(steps, seed):
    """The induction behind epsilon_j = j epsilon_1, on data that are made to part."""
    rng = np.random.default_rng(seed)
    mu, B, rho, own = 0.1, 1.0, 0.01, 0.4
    tables = []
    for sign in (1.0, -1.0):
        y = sign * np.ones(8)
        tables.append((5.0 * np.abs(rng.normal(size=(8, 3))), y))
    w = [np.zeros(3), np.zeros(3)]
    for j in range(1, 31):
        y_m, others = rng.normal(size=3), rng.normal(size=3)
        batches = draw_batches(8, 0, steps, rng)
        psi = [
            local_steps(Logistic(), v, X, y, mu, rho, B, batches)
            for v, (X, y) in zip(w, tables, strict=True)
        ]
        apart = np.linalg.norm(psi[0] - psi[1])
        assert apart <= 2.0 * mu * B * steps * j + 1e-12
        if j == 1:
            assert apart > 0.5 * 2.0 * mu * B * steps
        # g = y_m - psi, and the own combination is a psi - (1 - a) g, plus what others sent
        w = [own * p - (1.0 - own) * (y_m - p) + others for p in psi]
        assert np.linalg.norm(w[0] - w[1]) == pytest.approx(apart)


# --- an attack on one round ----------------------------------------------------------------------


def test_an_attack_on_a_round_refutes_the_papers_epsilon_and_not_the_corrected_one():
    """The worst case: one client, gradients of length B along the diagonal, replaced by -it."""
    config = ServerGraphConfig(clip=1.0, step=0.1, sigma=0.25, batch=0, ridge=0.0)
    weights = np.full((3, 3), 1.0 / 3.0)
    X = np.full((4, 2), 1e3)

    def psi(label):
        batches = draw_batches(4, 0, 1, np.random.default_rng(0))
        y = np.full(4, label)
        # Away from zero the logistic gradient of a wrong label has length |h|, here clipped.
        return local_steps(
            Logistic(), np.zeros(2), X, y, config.step, config.ridge, config.clip, batches
        )

    both = {label: psi(label) for label in (1.0, -1.0)}
    b = config.sigma / math.sqrt(2.0)
    # Exactly: the largest likelihood ratio of two Laplace products is exp(l1 distance / b).
    exact = float(np.abs(both[1.0] - both[-1.0]).sum()) / b
    claimed, printed = corrected_epsilon(config, 1, 2), paper_epsilon(config, 1)
    assert exact == pytest.approx(claimed, rel=1e-12)
    assert printed < 0.75 * exact

    def sample(label, count, rng):
        server = HybridServer(0, config.sigma, lambda m, i: rng)
        return np.array([server.messages(i, both[label], weights)[1] for i in range(count)])

    def ratio(block):
        return sum(
            sign * np.abs(block - both[label]).sum(axis=1) / b
            for label, sign in ((1.0, 1.0), (-1.0, -1.0))
        )

    rng = np.random.default_rng(4)
    found = audit(
        sample, 1.0, -1.0, trials=40_000, delta=0.0, rng=rng, confidence=0.999, direction=ratio
    )
    assert found.ceiling > claimed
    assert printed < found.epsilon_lower <= claimed


def test_every_neighbour_gets_the_same_draw_and_a_new_one_a_round():
    """One release a round: two neighbours that compare learn nothing more."""
    weights = np.full((4, 4), 0.25)
    server = HybridServer(0, 1.0, lambda m, i: np.random.default_rng([m, i]))
    psi = np.array([1.0, 2.0])
    one, two = server.messages(1, psi, weights), server.messages(2, psi, weights)
    assert sorted(one) == neighbours(weights, 0)
    assert len({message.tobytes() for message in one.values()}) == 1
    assert one[1].tobytes() != two[1].tobytes()
