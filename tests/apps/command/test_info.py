"""What `trellis info` and the reference tell of settings is what the config classes do."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from trellis import apps
from trellis.apps.command import main
from trellis.apps.command.info.described import meanings, setting, settings
from trellis.apps.common.settings import ConfigError, config_class

STUDIES = list(apps.STUDIES)
# The studies of the five papers; one that somebody adds may leave units out, and refuse words.
PAPERS = (
    "cluster-admm",
    "consensus-graph",
    "gromov-wasserstein",
    "joint-precision",
    "server-graph",
)
ALL = [(study, name) for study in STUDIES for name in config_class(study)().settings()]
LIMITS = {study: config_class(study).limits() for study in STUDIES}
CHECKED = [(study, name) for study, name in ALL if study in PAPERS and name in LIMITS[study]]
NUMBERS = [(study, name) for study, name in CHECKED if LIMITS[study][name].bounded]
WORDS = [(study, name) for study, name in CHECKED if LIMITS[study][name].words]


@pytest.mark.parametrize("study", STUDIES)
def test_every_setting_has_a_meaning_a_range_and_a_default(study):
    told = {one.name: one for one in settings(study)}
    config = config_class(study)()
    assert set(told) == set(config.settings())
    assert [name for name, one in told.items() if len(one.meaning) < 10 or not one.range] == []
    for name, one in told.items():
        value = one.default if one.kind != "bool" else one.default == "true"
        kept = config_class(study).typed(name, "" if value == '""' else value)
        assert kept[1] == getattr(config, kept[0])


@pytest.mark.parametrize("study", STUDIES)
def test_no_docstring_explains_what_is_not_there(study):
    cls = config_class(study)
    assert set(meanings(cls)) <= set(cls().settings())


@pytest.mark.parametrize("study", PAPERS)
def test_every_number_has_a_unit_and_a_checked_range(study):
    numbers = [one for one in settings(study) if one.kind in ("int", "float")]
    assert [one.name for one in numbers if not one.unit] == [], (
        "end the meaning in the docstring with [the unit], or [no unit]"
    )
    assert [one.name for one in numbers if one.name not in LIMITS[study]] == []


def attempt(study: str, name: str, value: object) -> str:
    """Return how a value of one setting is refused; nothing where it is taken."""
    try:
        config_class(study).from_settings({name: value})
    except ConfigError as error:
        return str(error)
    return ""


def of_a_combination(study: str, name: str, refusal: str) -> bool:
    """Return whether a refusal is about other settings, not about what the range says."""
    others = [key for key in config_class(study)().settings() if key != name]
    return any(re.search(rf"\b{key}\b", refusal.replace("_", "-")) for key in others)


@pytest.mark.parametrize(("study", "name"), NUMBERS)
def test_numbers_are_taken_within_their_range_and_refused_beyond(study, name):
    limit, kind = LIMITS[study][name], config_class(study).kinds()[name]
    for end, out, away in (
        (limit.least, limit.least_out, -1),
        (limit.most, limit.most_out, 1),
    ):
        if math.isinf(end):
            continue
        step = 1 if kind == "int" else max(abs(end) * 1e-9, 1e-9 if end == 0 else 0.0)
        beyond = end if out else end + away * step
        within = end - away * step if out else end
        refusal = attempt(study, name, beyond)
        assert refusal.startswith(f"{name}="), f"{name}={beyond} is taken"
        assert limit.told() in refusal or "must not be below" in refusal
        refusal = attempt(study, name, within)
        assert not refusal or of_a_combination(study, name, refusal), refusal
    for value in (*limit.beside, *limit.words):
        refusal = attempt(study, name, value)
        assert not refusal or of_a_combination(study, name, refusal), refusal
    assert attempt(study, name, math.inf if kind == "float" else 1.5)
    assert attempt(study, name, math.nan if kind == "float" else "many")


@pytest.mark.parametrize(("study", "name"), WORDS)
def test_words_are_taken_or_refused_for_a_combination(study, name):
    limit = LIMITS[study][name]
    for word in limit.words:
        refusal = attempt(study, name, word)
        assert not refusal or of_a_combination(study, name, refusal), refusal
    assert attempt(study, name, "no-such-word").startswith(f"{name}=")


@pytest.mark.parametrize("study", STUDIES)
def test_info_tells_every_setting_within_80_columns(study, capsys, monkeypatch):
    monkeypatch.chdir(Path(apps.__file__).resolve().parents[1])
    assert main(["info", study]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for name, value in config_class(study)().settings().items():
        assert re.search(rf"^  {name} = ", shown, re.MULTILINE), (name, value)
    folder = apps.STUDIES[study].removeprefix("trellis.").replace(".", "/")
    assert f"Read on:  {folder}/README.md\n" in shown
    assert "trellis paper" in shown or study not in PAPERS


def test_info_tells_one_setting(capsys):
    assert main(["info", "consensus-graph", "rho"]) == 0
    shown = capsys.readouterr().out
    for word in ("how hard clients are pulled", "> 0, or auto", "squared signals", "--set rho=1"):
        assert word in shown
    assert "overlap" not in shown


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("rh0", "did you mean rho?"),
        ("local_steps", "did you mean local-steps?"),
        ("zzz", "shows all"),
    ],
)
def test_a_setting_that_is_not_there_is_told(word, meant, capsys):
    assert main(["info", "consensus-graph", word]) == 1
    assert meant in " ".join(capsys.readouterr().out.split())


def test_meanings_are_written_as_users_type():
    assert "privacy=dp" in setting("server-graph", "average").meaning
    assert "_" not in setting("gromov-wasserstein", "learning-rate").meaning
