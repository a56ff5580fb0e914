"""A study's table of methods: what it chooses, and what it refuses by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from trellis import apps
from trellis.apps.common.checks.checking import ConfigError, kebab
from trellis.apps.common.methods import OF_EVERY_RUN, Method, Methods
from trellis.apps.common.settings import config_class

CLAIM = dict.fromkeys(("claim", "adversary", "neighbouring", "not_covered"), "-")


def row(method, privacy, *settings):
    return Method(method, privacy, frozenset(settings), CLAIM, "math:sqrt", "math:floor")


TABLE = Methods(
    "trellis",
    (
        row("joint", "none", "rho", "step"),
        row("joint", "dp", "rho", "epsilon"),
        row("alone", "none", "step"),
        row("alone", "dp"),
        row("pooled", "paper", "clip"),
    ),
)


def test_auto_is_the_first_row_of_a_privacy():
    assert [TABLE.default(privacy) for privacy in ("none", "dp", "paper")] == [
        *("joint", "joint", "pooled")
    ]
    assert TABLE.names() == ("joint", "alone", "pooled")


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (("joint", "paper"), "this method has privacy=none or dp; 'paper' has method=pooled"),
        (("else", "none"), "method='else': use one of joint, alone, pooled"),
    ],
)
def test_a_pair_that_is_not_in_the_table_is_refused_and_names_those_that_are(pair, words):
    with pytest.raises(ConfigError, match=words):
        TABLE.row(*pair)


@pytest.mark.parametrize(
    ("pair", "key", "words"),
    [
        (("joint", "none"), "epsilon", "it has with privacy=dp, or leave"),
        (("alone", "dp"), "rho", "it has with method=joint, or leave"),
        (("alone", "none"), "clip", "it has with method=pooled and privacy=paper, or leave"),
        (("alone", "none"), "robust", "no method of this study uses it; leave it at its default"),
    ],
)
def test_a_setting_without_effect_is_refused_and_says_where_it_has_one(pair, key, words):
    with pytest.raises(ConfigError, match=f"{key} has no effect with .*{words}"):
        TABLE.refuse_without_effect(TABLE.row(*pair), ["rounds", key])


def test_settings_of_every_run_and_of_the_row_pass():
    TABLE.refuse_without_effect(TABLE.row("joint", "none"), [*OF_EVERY_RUN, "rho", "step"])


WITH_A_TABLE = [study for study in apps.STUDIES if config_class(study).table is not None]


@pytest.mark.parametrize("study", WITH_A_TABLE)
def test_every_row_names_functions_that_are_there_and_settings_that_the_study_has(study):
    config = config_class(study)
    known = {kebab(field.name) for field in fields(config)}
    for found in config.table.rows:
        assert found.settings <= known, found.settings - known
        assert callable(config.table.load(found.server))
        if found.client:  # else no reply of a single client leaves it
            assert not found.sums
            assert callable(config.table.load(found.client))
        assert set(CLAIM) <= set(found.claim)
        assert all(found.claim[part] for part in CLAIM)
