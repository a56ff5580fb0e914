"""The setting epsilon means what it says: no run spends more, or it is refused by name.

Every study, method and privacy with a claim; a new study joins by itself, with its
defaults and few clients unless `SMALL` has something smaller.
"""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.common import DifferentialPrivacyParameters

from tests.crashing import crashing_after
from trellis import apps
from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import run
from trellis.apps.common.settings import ConfigError, config_class
from trellis.apps.server_graph.config import ServerGraphConfig
from trellis.apps.server_graph.spending import paper_epsilon, settled
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.core.enrolment import StudyError

DEFAULT = {"clients": 4, "rounds": 3, "tolerance": 0.0}
SMALL = {
    "cluster-admm": {
        "clients": 6, "servers": 2, "topology": "complete", "clusters": "2", "features": 3,
        "samples": "4-9", "rounds": 8, "zeta": 0.9,
    },
    "consensus-graph": {
        "clients": 3, "nodes": 5, "signals": "20", "rounds": 4, "tolerance": 0.0,
    },
    "gromov-wasserstein": {
        "clients": 3, "graphs": 6, "rounds": 2, "downstream": "none",
    },
    "joint-precision": {
        "clients": 3, "variables": 4, "blocks": 2, "samples": "30", "rounds": 4, "tolerance": 0.0,
        "lambda1": 0.95,  # so that every noisy matrix has a solution
    },
    "server-graph": {
        "clients": 9, "servers": 3, "topology": "ring", "samples": "20", "rounds": 6, "clip": 0.5,
    },
}  # fmt: skip
# What a mode cannot do without, where the defaults lack it.
NEEDS = {("consensus-graph", "paper"): {"local-steps": 2}}
SLOW = ("gromov-wasserstein",)  # whose epsilon is one of three
EPSILONS = (0.1, 1.0, 8.0)
WAYS = [{"privacy": "paper"}, {"privacy": "dp"}]
CASES = [
    (study, method, way, epsilon)
    for study in apps.STUDIES
    for method in config_class(study).methods
    for way in WAYS
    for epsilon in ((1.0,) if study in SLOW else EPSILONS)
]
SLACK = 1.0 + 1e-9


def spend(study, settings, folder, **more) -> tuple[RunResult | None, str]:
    """Run a study; return what it left, and why it stopped. What is refused leaves nothing."""
    try:
        return run(study, settings, out=folder, report=False, **more), ""
    except ConfigError as error:
        assert not (folder / "metrics.csv").exists()  # before the first round
        return None, str(error)
    except StudyError as error:
        return RunResult.load(folder), str(error)


def within(result: RunResult, epsilon: float) -> None:
    """Check the total and every client's."""
    if result.status == "failed" and not result.ledger:
        return  # nothing is claimed for it
    assert result.ledger["epsilon"] <= epsilon * SLACK
    for entry in result.ledger["clients"]:
        assert entry.get("epsilon", 0.0) <= epsilon * SLACK
    if result.config["privacy"] == "dp":
        assert result.ledger["delta"] <= result.config["delta"]


@pytest.mark.parametrize(("study", "method", "way", "epsilon"), CASES, ids=str)
def test_no_run_spends_more_than_its_epsilon(study, method, way, epsilon, tmp_path):
    asked = {"method": method, **way, "epsilon": epsilon}
    settings = {**SMALL.get(study, DEFAULT), **NEEDS.get((study, way["privacy"]), {}), **asked}
    table = config_class(study).table
    for row in () if table is None else table.rows:
        if (row.method, row.privacy) == (method, way["privacy"]):  # what has an effect in it
            settings = {key: value for key, value in settings.items() if row.has(key)}
    result, why = spend(study, settings, tmp_path)
    if result is None:
        assert any(f"{name}=" in why for name in settings), why
        return
    within(result, epsilon)
    if why:
        assert any(name in why for name in config_class(study).from_settings({}).settings()), why
        return
    spent = result.ledger["epsilon"]
    noised = any(entry.get("events") for entry in result.ledger["clients"])
    if noised or study == "server-graph":
        assert spent >= 0.3 * epsilon  # worth having
    else:
        assert spent == 0.0


# --- cluster-admm --------------------------------------------------------------------------------

MODELS = {**SMALL["cluster-admm"], "privacy": "paper"}


def test_a_phi0_that_spends_more_is_refused_and_says_what_to_do():
    settings = {**MODELS, "sample": 2, "epsilon": 1.0}
    chosen = ClusterAdmmConfig.from_settings(settings)
    assert chosen.settings()["phi0"] == "auto"
    same = ClusterAdmmConfig.from_settings({**settings, "phi0": chosen.phi_start})
    assert same.phi_start == chosen.phi_start
    with pytest.raises(
        ConfigError, match=r"phi0=.*8 rounds would spend epsilon 1\.1.*epsilon=1 .*set phi0=auto"
    ) as refused:
        ClusterAdmmConfig.from_settings({**settings, "phi0": 1.2 * chosen.phi_start})
    enough = float(str(refused.value).split("set epsilon to ")[1].split()[0])
    ClusterAdmmConfig.from_settings(
        {**settings, "phi0": 1.2 * chosen.phi_start, "epsilon": 1.001 * enough}
    )
    for other in ({"privacy": "none"}, {"privacy": "dp"}):
        with pytest.raises(ConfigError, match="phi0 has no effect"):
            ClusterAdmmConfig.from_settings({**other, "phi0": 2.0})


def test_noise_that_falls_to_nothing_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"zeta=0\.01, rounds=200: .*epsilon=1 at delta"):
        ClusterAdmmConfig.from_settings({**MODELS, "zeta": 0.01, "rounds": 200})


def test_a_run_that_fails_tells_what_it_has_spent(tmp_path):
    many = {"clients": 30, "servers": 10, "topology": "random:3"}
    settings = {**MODELS, **many, "rho": 0.3, "rounds": 100, "zeta": 0.99}
    result, why = spend("cluster-admm", settings, tmp_path)
    assert "rho" in why
    assert result.status == "failed"
    within(result, 1.0)
    assert result.ledger["epsilon"] > 0.0


# --- server-graph --------------------------------------------------------------------------------

SERVERS = {**SMALL["server-graph"], "privacy": "paper"}
SUMS = {**SMALL["server-graph"], "privacy": "dp"}


@pytest.mark.parametrize("method", ["hybrid", "iid"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_another_library_finds_the_corrected_epsilon_in_the_noise_between_servers(
    method, epsilon, tmp_path
):
    settings = {**SERVERS, "method": method, "epsilon": epsilon}
    result, _ = spend("server-graph", settings, tmp_path)
    # Round j is a pure release of sqrt(M) 2 mu B j / b, to each of two neighbours of a ring.
    scale, times = result.ledger["sigma"] / math.sqrt(2.0), 2 if method == "iid" else 1
    whole = None
    for j in range(1, 7):
        one = math.sqrt(2.0) * 2.0 * 0.1 * 0.5 * j / scale
        worst = privacy_loss_distribution.from_privacy_parameters(
            DifferentialPrivacyParameters(one, 0.0)
        )
        for _ in range(times):
            whole = worst if whole is None else whole.compose(worst)
    corrected = result.metrics[-1]["epsilon-corrected"]
    assert 0.3 * corrected <= whole.get_epsilon_for_delta(1e-5) <= corrected * (1.0 + 1e-3)
    assert result.ledger["epsilon"] == pytest.approx(epsilon, rel=1e-6)  # as printed: less
    assert result.ledger["epsilon_corrected"] == pytest.approx(corrected)


def test_without_privacy_sigma_is_that_of_the_paper_to_the_bit(tmp_path):
    settings = {**SERVERS, "privacy": "none", "method": "hybrid"}
    first, _ = spend("server-graph", settings, tmp_path / "auto")
    given, _ = spend("server-graph", {**settings, "sigma": 0.2}, tmp_path / "given")
    assert first.arrays["models"].tobytes() == given.arrays["models"].tobytes()


def test_a_sigma_that_spends_more_is_refused_when_settings_are_read(tmp_path):
    said = r"sigma=.*would spend epsilon .*epsilon=1.*set sigma=auto"
    with pytest.raises(ConfigError, match=said):
        ServerGraphConfig.from_settings({**SERVERS, "sigma": 0.2})
    alone = settled(ServerGraphConfig.from_settings(SERVERS), 1).sigma
    result, _ = spend("server-graph", {**SERVERS, "sigma": 1.5 * alone}, tmp_path / "more")
    within(result, 1.0)


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("epsilon", [0.01, *EPSILONS, 100.0])
def test_the_chosen_sigma_spends_epsilon_and_nothing_less_would(size, epsilon):
    settings = {**SERVERS, "sample": 1, "epsilon": epsilon, "secure-aggregation": "off"}
    found = settled(ServerGraphConfig.from_settings(settings), size)
    spent = paper_epsilon(found, found.rounds)
    assert spent == pytest.approx(epsilon, rel=1e-6)
    assert spent <= epsilon * SLACK


@pytest.mark.parametrize("epsilon", [0.1, 8.0])
@pytest.mark.parametrize("batch", [0, 15])
def test_clients_of_unequal_sizes_make_one_sum_and_each_spends_epsilon_at_most(
    batch, epsilon, tmp_path
):
    """Small clients need more noise, and no batch of 15 can be drawn of 8: shares are the same."""
    sizes = ",".join(["8", "20", "50"] * 3)
    settings = {"clients": 9, "rounds": 6, "clip": 0.5, "privacy": "dp"}
    settings |= {"method": "fedavg", "samples": sizes, "batch": batch}
    more = {"epsilon": epsilon, "held-out": 0.3, "standardise": "shared"}
    result, why = spend("server-graph", {**settings, **more}, tmp_path)
    assert why == ""
    within(result, epsilon)
    spent = [entry["epsilon"] for entry in result.ledger["clients"]]
    assert max(spent) >= 0.3 * epsilon
    rounds = [
        event for event in result.ledger["clients"][0]["events"] if "gradients" in event["what"]
    ]
    assert len(rounds) == 6  # none was made again
    widths = {
        event["sigma"]
        for entry in result.ledger["clients"]
        for event in entry["events"]
        if "gradients" in event["what"]
    }
    assert len(widths) == 1


# --- gromov-wasserstein --------------------------------------------------------------------------

GRAPHS = SMALL["gromov-wasserstein"]


def test_epsilon_is_divided_among_the_releases_of_a_run(tmp_path):
    settings = {**GRAPHS, "rounds": 5, "privacy": "paper", "release-every": 2, "epsilon": 6.0}
    result, _ = spend("gromov-wasserstein", settings, tmp_path)
    for entry in result.ledger["clients"]:
        assert [event["epsilon"] for event in entry["events"]] == pytest.approx([2.0, 2.0, 2.0])
    within(result, 6.0)


@pytest.mark.parametrize("method", ["untrained", "fedavg"])
def test_the_ledger_tells_a_node_s_epsilon_beside_that_of_its_graph(method, tmp_path):
    settings = {**GRAPHS, "privacy": "dp", "budget-per": "node", "method": method}
    result, _ = spend("gromov-wasserstein", settings, tmp_path)
    assert 0.3 <= result.ledger["epsilon_node"] <= SLACK
    assert result.ledger["epsilon"] <= SLACK * max(result.arrays["sizes"])
    assert result.ledger["epsilon"] > 2.0  # the graph's, which a device's budget counts
    assert any("a graph of n nodes spends n times" in note for note in result.notes)


# --- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("cluster-admm", MODELS),
        ("server-graph", SERVERS),
        ("server-graph", SUMS),
        ("gromov-wasserstein", {**GRAPHS, "privacy": "dp", "method": "fedavg"}),
        ("gromov-wasserstein", {**GRAPHS, "privacy": "paper"}),
        ("consensus-graph", {**SMALL["consensus-graph"], "privacy": "paper", "local-steps": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else value["privacy"],
)
def test_noise_for_fewer_rounds_is_not_used_for_more(study, settings, tmp_path):
    rounds = settings["rounds"]
    run(study, settings, out=tmp_path, report=False)
    with pytest.raises(CheckpointError, match=f"rounds={rounds}, this run has rounds={rounds + 1}"):
        run(study, {**settings, "rounds": rounds + 1}, out=tmp_path, report=False, resume=True)


_FEATURES = {"standardise": "shared", "held-out": 0.3}


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("cluster-admm", MODELS),
        ("server-graph", {**SUMS, "batch": 5, **_FEATURES}),
        ("gromov-wasserstein", {**GRAPHS, "privacy": "dp", "method": "fedavg"}),
    ],
    ids=lambda value: value if isinstance(value, str) else value["privacy"],
)
def test_a_run_that_is_resumed_tells_of_all_it_has_spent(study, settings, tmp_path):
    whole = run(study, settings, out=tmp_path / "whole", report=False)
    with crashing_after(1):
        run(study, settings, out=tmp_path / "crashed", report=False)
    again = run(study, settings, out=tmp_path / "crashed", report=False, resume=True)
    within(again, 1.0)
    assert again.ledger["epsilon"] == whole.ledger["epsilon"]
    for one, other in zip(whole.ledger["clients"], again.ledger["clients"], strict=True):
        assert one["events"] == other["events"]


@pytest.mark.parametrize(
    ("study", "settings", "releases"),
    [
        ("consensus-graph", {**SMALL["consensus-graph"], "privacy": "dp"}, 1),
        ("joint-precision", {**SMALL["joint-precision"], "privacy": "dp"}, 1),
        ("server-graph", SUMS, 2),
        ("gromov-wasserstein", {**GRAPHS, "privacy": "dp", "method": "fedavg"}, 1),
    ],
)
def test_a_run_of_sums_that_fails_tells_what_it_has_spent(study, settings, releases, tmp_path):
    with crashing_after(releases):
        run(study, settings, out=tmp_path, report=False)
    result = RunResult.load(tmp_path)
    assert result.status == "failed"
    within(result, 1.0)
    assert result.ledger["epsilon"] > 0.0
    assert all(len(entry["events"]) == releases for entry in result.ledger["clients"])
