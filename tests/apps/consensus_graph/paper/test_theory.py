"""What the paper proves, in numbers: what holds, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.experiments.making import make
from trellis.apps.consensus_graph.paper.algorithm import Constants
from trellis.apps.consensus_graph.paper.theory.bounds import smoothness, steepest
from trellis.apps.consensus_graph.problem import gradient

STUDY = "consensus-graph"
KNOWN = Constants(alpha=2.0, beta=0.05, rho=1.0, lambda_=0.3, step=0.01, local_steps=1, rounds=1)


def test_the_steepest_direction_is_that_of_the_hessian():
    rng = np.random.default_rng(1)
    w, d = rng.random(28), 8
    hessian = np.empty((28, 28))
    for k in range(28):
        ahead, back = w.copy(), w.copy()
        ahead[k] += 1e-6
        back[k] -= 1e-6
        change = gradient(ahead, np.zeros(28), 2.0, 0.05) - gradient(back, np.zeros(28), 2.0, 0.05)
        hessian[k] = change / 2e-6
    top = float(np.linalg.eigvalsh(0.5 * (hessian + hessian.T))[-1])
    assert steepest(w, KNOWN, 0.3) == pytest.approx(top + 0.3, rel=1e-5)
    equal = np.full(28, 0.2)  # the bound is attained where all degrees are the smallest
    assert steepest(equal, KNOWN, 0.3) == pytest.approx(smoothness(KNOWN, 0.3, d, 1.4))


def test_proposition_1_holds_where_degrees_are_positive_and_the_extended_set_has_others(
    tmp_path, console
):
    found = make(STUDY, "proposition1", tmp_path, console, seeds=2)
    assert {f.claim: f.verdict for f in found} == {
        "prop1-smooth": "reproduced",
        "prop1-consensus": "reproduced",
        "prop1-gradient": "reproduced",
        "prop1-extended": "refuted",
    }


def test_theorem_1_holds_for_one_step_a_round_and_not_for_twenty_five(tmp_path, console):
    numbers = {"seeds": 2, "rounds": 8, "rounds-one-step": 100}
    found = {f.claim: f for f in make(STUDY, "theorem1", tmp_path, console, **numbers)}
    assert found["theorem1-one"].verdict == "reproduced"
    assert found["theorem1-more"].verdict == "partly"  # (22) holds, (21) does not
    assert "K = 25, clients' graphs" in found["theorem1-more"].why


def test_theorem_2_leaves_a_level_that_goes_by_the_noise(tmp_path, console):
    numbers = {"seeds": 2, "rounds-one-step": 200}
    found = make(STUDY, "theorem2", tmp_path, console, **numbers)
    assert [f.verdict for f in found] == ["reproduced", "reproduced"]


def test_theorem_3_does_not_hold_and_the_un_noised_steps_are_why(tmp_path, console):
    numbers = {"seeds": 1, "nodes": 20, "trials": 50_000}
    (finding,) = make(STUDY, "theorem3", tmp_path, console, **numbers)
    assert finding.verdict == "refuted"
    lines = (tmp_path / "theorem3.csv").read_text().splitlines()
    columns = lines[0].split(",")
    place = columns.index("true over claimed sensitivity")
    # The first column is text with a comma, in quotes.
    ratios = [float(line.rpartition('"')[2].split(",")[place]) for line in lines[1:3]]
    assert ratios[0] < np.sqrt(2.0) < 166.0 < ratios[1]


def test_graphs_tell_the_statistic(tmp_path, console):
    numbers = {"seeds": 2, "nodes": 20}
    (finding,) = make(STUDY, "graphs-tell", tmp_path, console, **numbers)
    assert finding.verdict == "refuted"


def test_the_paper_s_constants_belong_to_two_scales(tmp_path, console):
    numbers = {"seeds": 3, "nodes": 20, "local-steps": 25}
    found = {f.claim: f.verdict for f in make(STUDY, "constants", tmp_path, console, **numbers)}
    assert found["constants-scale"] == "reproduced"
    assert found["constants-clip"] == found["constants-converged"] == "partly"
