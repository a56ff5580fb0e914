from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from trellis import apps
from trellis.apps.command import flower_apps
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import ConfigError, StudyConfig, config_class
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.privacy.device.policy import Policy

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_apps_run_configs_have_every_setting_with_its_default():
    written = {path: path.read_text() for path in flower_apps.texts(ROOT)}
    stale = [
        str(p.relative_to(ROOT)) for p, t in flower_apps.texts(ROOT).items() if written[p] != t
    ]
    assert not stale, "not as the config classes have it; write them anew by: make apps"


@pytest.mark.parametrize("study", list(apps.STUDIES))
def test_an_app_leaves_open_how_many_clients_and_servers_there_are(study):
    config = PYPROJECT["tool"]["flwr"]["app"]["config"][study]
    usual = config_class(study).defaults()
    other = {key for key in usual if config[key] != usual[key]}
    assert config.keys() == usual.keys()
    assert other == {"clients", "servers"} & usual.keys()
    assert all(config[key] == 0 for key in other)


@pytest.mark.parametrize("study", list(apps.STUDIES))
def test_the_paper_s_settings_are_valid(study):
    folder = apps.STUDIES[study].removeprefix("trellis.").replace(".", "/")
    content = tomllib.loads((ROOT / folder / "paper" / "settings.toml").read_text())
    assert content["study"] == study
    config_class(study).from_settings(content[study])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": -1}, "rho=-1.0: must not be below 0"),
        ({"rho": "abc"}, "rho='abc': must be a number"),
        ({"rho": True}, "rho=True: must be a number"),
        ({"rho": float("nan")}, "rho=nan"),
        ({"beta": 0}, "beta=0.0: must be > 0"),
        ({"beta": float("inf")}, "beta=inf"),
        ({"lambda": -0.1}, "lambda=-0.1: must be >= 0"),
        ({"clients": 0}, "clients=0: must be >= 1"),
        ({"clients": 2.5}, "clients=2.5: must be a whole number"),
        ({"rounds": 0}, "rounds=0: must be >= 1"),
        ({"sample": 6}, "sample=6: more than clients=5"),
        ({"method": "magic"}, "method='magic': use one of fedgl, igl, fedavg"),
        ({"privacy": "strong"}, "privacy='strong': use one of none, paper, dp"),
        ({"epsilon": 0}, "epsilon=0.0: must be > 0"),
        ({"delta": 1}, "delta=1.0: must be between 0 and 1"),
        ({"clip": -1}, "clip=-1.0: must be between 1e-100 and 1e+100, or 0"),
        ({"nodes": 2}, "nodes=2: must be >= 3"),
        ({"overlap": 1.5}, "overlap=1.5: must be between 0 and 1"),
        ({"signals": "20,30"}, "signals='20,30'"),
        ({"signals": 1}, "signals='1'"),
        ({"signals": "many"}, "signals='many'"),
        ({"timeout": 0}, "timeout=0.0: must be > 0"),
        ({"tolerance": -1}, "tolerance=-1.0: must be >= 0"),
        ({"local-steps": -1}, "local-steps=-1: must be >= 0"),
        ({"rhoo": 1}, "rhoo: unknown setting of consensus-graph; did you mean 'rho'"),
        ({"qwertz": 1}, "qwertz: unknown setting of consensus-graph; known: rounds"),
        ({"privacy": "paper"}, "local-steps >= 1"),
        ({"privacy": "paper", "method": "igl", "local-steps": 3}, "'paper' has method=fedgl"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(settings, message):
    with pytest.raises(ConfigError) as error:
        ConsensusGraphConfig.from_settings(settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("study", "settings", "message"),
    [
        ("consensus-graph", {"norm-bound": -1}, "norm-bound=-1.0: must be >= 0"),
        ("consensus-graph", {"robust": "mode"}, "use one of none, clip, median, trimmed"),
        ("consensus-graph", {"trim": 0.5}, "trim=0.5: must be between 0 and 0.5"),
        ("consensus-graph", {"robust": "clip"}, "robust='clip': needs norm-bound > 0"),
        ("consensus-graph", {"robust": "median", "clients": 2}, "2 clients are asked"),
        ("consensus-graph", {"robust": "trimmed", "sample": 2}, "2 clients are asked"),
        ("consensus-graph", {"norm-bound": 1, "method": "igl"}, "norm-bound has no effect"),
        (
            "consensus-graph",
            {"robust": "median", "method": "fedavg", "secure-aggregation": True},
            "with secure aggregation: the server sees sums only",
        ),
        (
            "gromov-wasserstein",
            {"robust": "clip", "norm-bound": 1, "secure-aggregation": True},
            "with secure aggregation: the server sees sums only",
        ),
        ("server-graph", {"robust": "median"}, "with secure aggregation"),
        ("server-graph", {"robust": "median", "method": "none", "clients": 20}, "asks 2 of its"),
        (
            "server-graph",
            {"norm-bound": 1, "privacy": "dp", "clip": 1},
            "norm-bound has no effect with method='hybrid' and privacy='dp'",
        ),
        ("joint-precision", {"robust": "median"}, "meet in a penalty, not in a mean"),
        (
            "joint-precision",
            {"norm-bound": 1, "method": "glasso"},
            "norm-bound has no effect with method='glasso'",
        ),
        ("cluster-admm", {"robust": "trimmed", "mixing": "exact"}, "solves for a sum"),
        ("cluster-admm", {"norm-bound": 1, "method": "local"}, "has no effect with method"),
    ],
)
def test_a_rule_against_bad_clients_that_has_nothing_to_act_on_is_refused(study, settings, message):
    with pytest.raises(ConfigError) as error:
        config_class(study).from_settings(settings)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("consensus-graph", {"robust": "trimmed", "norm-bound": 2}),
        ("consensus-graph", {"method": "fedavg", "secure-aggregation": True, "norm-bound": 2}),
        ("server-graph", {"norm-bound": 1}),
        ("joint-precision", {"norm-bound": 3, "robust": "clip"}),
    ],
)
def test_a_rule_against_bad_clients_that_makes_sense_is_taken(study, settings):
    config_class(study).from_settings(settings)


def test_settings_round_trip_through_a_flower_run_config():
    config = ConsensusGraphConfig.from_settings(
        {"lambda": 1, "signals": "20,40", "clients": 2, "local-steps": "7"}
    )
    assert config.lambda_ == 1.0
    assert config.local_steps == 7
    assert config.signal_counts() == [20, 40]
    other = {"seed": 3, "another-study.rho": 5.0}
    assert ConsensusGraphConfig.from_run_config({**config.run_config(), **other}) == config


def test_configs_cannot_be_changed():
    with pytest.raises(AttributeError):
        ConsensusGraphConfig().rho = 3.0  # type: ignore[misc]


def test_a_number_may_be_left_to_the_study_by_a_word():
    @dataclass(frozen=True, kw_only=True)
    class Choosing(StudyConfig):
        study: ClassVar[str] = "choosing"
        methods: ClassVar[tuple[str, ...]] = ("only",)
        auto_settings: ClassVar[tuple[str, ...]] = ("pace",)

        method: str = "only"
        pace: float = 1.0

        def __post_init__(self) -> None:
            super().__post_init__()
            self.positive("pace")

    config = Choosing.from_settings({"pace": "auto"})
    assert config.is_auto("pace")
    assert config.settings()["pace"] == "auto"
    assert Choosing.from_run_config(config.run_config()) == config
    assert not Choosing().is_auto("pace")
    with pytest.raises(ConfigError, match="or auto"):
        Choosing(pace=0.0)
    with pytest.raises(ConfigError, match="epsilon='auto': must be a number"):
        Choosing.from_settings({"epsilon": "auto"})


@pytest.mark.parametrize("study", apps.STUDIES)
def test_files_of_a_figure_have_the_study_s_defaults(study):
    kind = config_class(study)
    plain = kind.defaults()
    found = kind.as_defaults({"rounds": 7})
    assert found.pop("rounds") == 7
    assert found == {key: plain[key] for key in found}
    assert set(kind.own_data) <= set(found)
    # Nothing is left to be chosen for them as if they were a person's own.
    assert kind.for_own_data(found) == found


def test_the_old_word_for_dp_is_accepted_with_a_warning(caplog):
    settings = {"privacy": "sound", "epsilon": 3.0}
    run_config = make_run_config("consensus-graph", settings)
    assert run_config["consensus-graph.privacy"] == "dp"
    assert "privacy='dp'" in caplog.text
    assert config_class("consensus-graph").from_settings(settings).privacy == "dp"
    device = {"max-epsilon": 5.0, "state-path": "/nowhere", "privacy": ["sound"]}
    Policy.from_node_config(device).permit("dp")
