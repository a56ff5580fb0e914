"""What tuning costs devices is said, asked for, kept to, and added up from the ledgers."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as distributions
from dp_accounting.pld.common import DifferentialPrivacyParameters

from trellis.apps.common.settings import ConfigError
from trellis.apps.tuning import privacy
from trellis.apps.tuning.outcome import cost_in_words
from trellis.apps.tuning.plan import make_plan
from trellis.apps.tuning.privacy import share, spent_by_all
from trellis.apps.tuning.runs import Found, evaluate
from trellis.apps.tuning.tuner import tune
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.totals import total_epsilon, total_rho
from trellis.privacy.accounting.zcdp import zcdp_epsilon, zcdp_rho

from .toys import STUDY, hill

DP = {"privacy": "dp", "rounds": 5}
OVER = {"alpha": "0.1,10"}


@pytest.fixture
def hospitals(tmp_path):
    folder = tmp_path / "hospitals"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for name in ("north", "south", "west"):
        np.savez(folder / f"{name}.npz", X=rng.normal(size=(30, 5)))
    return folder


@pytest.fixture
def labelled(tmp_path):
    folder = tmp_path / "labelled"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for client in range(6):
        X = rng.normal(size=(40, 2))
        np.savez(folder / f"{client}.npz", X=X, y=np.sign(X[:, 0] + 0.1))
    return folder


def test_on_private_data_it_is_refused_without_a_budget_and_says_what_is_free(hospitals):
    with pytest.raises(ConfigError) as refused:
        make_plan(STUDY, OVER, DP, data=hospitals)
    text = str(refused.value)
    together = zcdp_epsilon(9 * zcdp_rho(1.0, 1e-5), 1e-5)
    assert f"9 runs of {STUDY}" in text
    assert f"devices would spend {together:.3g} in all" in text
    for words in ("--spend EPSILON", "synthetic data", "--public", "chosen at home", "nothing is"):
        assert words in text


def test_synthetic_and_public_data_cost_nothing(hospitals):
    for options in ({}, {"data": hospitals, "public": True}):
        plan = make_plan(STUDY, OVER, DP, **options)
        assert plan.share is None
        assert "epsilon" not in plan.run((0.1,), 1).settings
        with pytest.raises(ConfigError, match="nobody to protect"):
            make_plan(STUDY, OVER, DP, spend=1.0, **options)


def test_parts_by_zcdp_add_up_to_the_budget(hospitals):
    plan = make_plan(STUDY, OVER, DP, data=hospitals, spend=2.0)
    part = plan.share
    assert part.runs == 9
    assert part.rho == pytest.approx(zcdp_rho(2.0, 1e-5) / 9)
    assert zcdp_epsilon(9 * zcdp_rho(part.epsilon, 1e-5), 1e-5) <= 2.0
    assert part.epsilon > 2.0 / 9  # plain composition would leave each run less
    assert plan.run((0.1,), 1).settings["epsilon"] == part.epsilon


def test_where_zcdp_does_not_hold_plain_composition_does(labelled):
    settings = {"privacy": "dp", "servers": 2, "rounds": 4, "topology": "ring"}
    plan = make_plan("server-graph", {"step": "auto,0.5"}, settings, data=labelled, spend=6.0)
    part = plan.share
    assert part.rho is None
    assert (part.epsilon, part.run_delta) == (1.0, pytest.approx(1e-5 / 6))
    with pytest.raises(ConfigError, match=r"devices would spend 6 in all"):
        make_plan("server-graph", {"step": "auto,0.5"}, settings, data=labelled)


def test_real_runs_keep_to_the_budget_by_their_own_ledgers(hospitals, tmp_path):
    out = tmp_path / "out"
    found = tune(
        STUDY,
        {"alpha": "0.1,10"},
        DP,
        data=hospitals,
        spend=2.0,
        splits=2,
        workers=1,
        out=out,
    )
    runs = [one for trial in found.trials for one in trial.found.values()]
    assert len(runs) == 6
    # Added up by hand: the releases of one client, in all runs, as one long list.
    events = [
        PrivacyEvent.from_record({"name": "x", "what": "", "round": 0, **record})
        for run in runs
        for names, releases in run.spent
        if "north" in names
        for record, times in releases
        for _ in range(times)
    ]
    assert len(events) >= 6
    assert total_epsilon(events, 1e-5) == pytest.approx(found.spent, rel=1e-9)
    assert total_rho(events) <= zcdp_rho(2.0, 1e-5)
    assert 1.0 < found.spent <= 2.0
    # Told wherever the settings go.
    for name in ("best.toml", "tuning.html"):
        text = " ".join((out / name).read_text().replace("#", " ").split())
        assert "spend at most 2 together" in text
        assert f"it was {found.spent:.4g}" in text
        assert "nothing is really spent" in text
        assert "exact scores" in text
    # The next run has its own epsilon, not a tuning run's small part.
    assert "epsilon" not in found.best


def test_batches_drawn_in_secret_keep_to_it_too(labelled):
    settings = {"privacy": "dp", "servers": 2, "rounds": 4, "topology": "ring"}
    found = tune(
        "server-graph",
        {"step": "0.1,0.5"},
        settings,
        data=labelled,
        spend=6.0,
        splits=1,
        by="disagreement",
        workers=1,
    )
    assert 0.0 < found.spent <= 6.0
    # Not by clients' exact scores this time, and so nothing is said of them.
    assert privacy.BY_HEADLINE in cost_in_words(found)
    assert privacy.EXACT_SCORES not in cost_in_words(found)


def test_a_run_that_releases_more_than_its_part_stops_all(hospitals):
    def greedy(run):
        more = {**run.settings, "epsilon": 2.0 * run.settings["epsilon"]}
        return evaluate(type(run)(run.study, run.values, more, run.seed, run.data, run.by, False))

    with pytest.raises(RuntimeError, match="part of --spend 2"):
        tune(
            STUDY,
            OVER,
            DP,
            data=hospitals,
            spend=2.0,
            by="consensus-edges",
            workers=1,
            evaluate=greedy,
        )


def test_a_failed_run_under_privacy_is_not_made_twice(hospitals, tmp_path):
    calls = []

    def failing(run):
        calls.append(run)
        return Found(error="no luck") if run.values["alpha"] == 10.0 else hill(run)

    for _ in range(2):
        tune(
            STUDY,
            OVER,
            DP,
            data=hospitals,
            spend=2.0,
            workers=1,
            out=tmp_path / "out",
            evaluate=failing,
        )
    assert len(calls) == 9


def release(sigma):
    event = PrivacyEvent("a", "", 0, 1.0, 1e-5, sigma=sigma, sensitivity=1.0)
    record = event.as_record()
    return {key: record[key] for key in record if key not in ("name", "what", "round")}


def test_every_client_has_its_own_total_and_the_most_is_told():
    runs = [
        Found(spent=[(["a", "b"], [(release(5.0), 1)]), (["c"], [(release(2.0), 1)])]),
        Found(spent=[(["a"], [(release(1.0), 2)]), (["b", "c"], [(release(5.0), 1)])]),
        Found(error="before anything was released"),
    ]
    of_a = [PrivacyEvent.from_record({"name": "x", "what": "", "round": 0, **release(s)})
            for s in (5.0, 1.0, 1.0)]  # fmt: skip
    assert spent_by_all(runs, 1e-5) == pytest.approx(total_epsilon(of_a, 1e-5))
    assert spent_by_all([], 1e-5) == 0.0


def test_a_budget_is_a_number_above_zero():
    with pytest.raises(ConfigError, match="--spend -1"):
        share(STUDY, [], -1.0, 1e-5, 3)


def test_without_privacy_nothing_is_claimed(tmp_path):
    found = tune(STUDY, OVER, evaluate=hill, workers=1, out=tmp_path)
    assert found.spent is None
    for name in ("best.toml", "tuning.html"):
        assert "epsilon" not in (tmp_path / name).read_text()


# --- what is not known counts whole --------------------------------------------------------------


@pytest.mark.parametrize("total", [0.1, 2.0, 8.0])
@pytest.mark.parametrize("runs", [1, 4, 30])
def test_another_library_finds_no_more_in_all_parts_together(total, runs):
    adding = share(STUDY, [{"privacy": "dp"}], total, 1e-5, runs)
    ratio = np.sqrt(2.0 * zcdp_rho(adding.epsilon, adding.run_delta))
    together = distributions.from_gaussian_mechanism(1.0 / (ratio * np.sqrt(runs)))
    assert 0.5 * total <= together.get_epsilon_for_delta(1e-5) <= total
    plain = share("server-graph", [{"privacy": "dp"}], total, 1e-5, runs)
    assert (plain.rho, plain.run_delta) == (None, 1e-5 / runs)
    worst = distributions.from_privacy_parameters(
        DifferentialPrivacyParameters(plain.epsilon, plain.run_delta)
    ).self_compose(runs)
    assert worst.get_delta_for_epsilon(total * (1.0 + 1e-6)) <= 1e-5 * (1.0 + 1e-6)


def test_a_run_that_failed_counts_with_its_whole_part(hospitals, labelled):
    def failing(run):
        return Found(error="after it had released") if run.values != {"alpha": 0.1} else hill(run)

    found = tune(STUDY, OVER, DP, data=hospitals, spend=2.0, workers=1, evaluate=failing)
    assert found.unknown == 6
    rho = zcdp_rho(2.0, 1e-5) * 6 / 9
    assert found.spent == pytest.approx(zcdp_epsilon(rho, 1e-5), rel=1e-6)
    assert "those that failed counted" in " ".join(cost_in_words(found))
    # Beside what others are known to have released.
    part = found.plan.share
    known = Found(spent=[(["a"], [(release(5.0), 1)])])
    one = Found(error="no luck")
    both = zcdp_epsilon(part.rho + 0.5 / 25.0, 1e-5)
    assert spent_by_all([known, one], 1e-5, part) == pytest.approx(both, rel=1e-6)
    plain = share("server-graph", [{"privacy": "dp"}], 6.0, 1e-5, 3)
    found = [known, one, Found(told=1.5)]
    event = PrivacyEvent.from_record({"name": "x", "what": "", "round": 0, **release(5.0)})
    expected = total_epsilon([event], 1e-5 / 3) + 2.0 + 1.5
    assert spent_by_all(found, 1e-5, plain) == pytest.approx(expected, rel=1e-6)


def test_a_run_that_was_cut_short_is_made_again_to_the_same_releases(hospitals):
    """So that they count once: the noise of a simulation comes from the seed."""
    plan = make_plan(STUDY, OVER, DP, data=hospitals, spend=2.0)
    one, other = (evaluate(plan.run((0.1,), 1)) for _ in range(2))
    assert one.spent
    assert (one.value, one.spent) == (other.value, other.spent)
