"""What a setting may be, as people write it."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.settings import ConfigError
from trellis.apps.tuning.space import count_of, read_over, read_spaces

STUDY = "consensus-graph"


def space(key, text, study=STUDY):
    (found,) = read_spaces(study, {key: text})
    return found


def test_a_range_by_factors_has_five_points_the_same_factor_apart():
    found = space("rho", "0.1:10:log")
    assert found.values == (0.1, 0.3162, 1.0, 3.162, 10.0)
    assert found.is_range
    assert (found.low, found.high, found.log) == (0.1, 10.0, True)


def test_a_range_is_even_where_nobody_says_log():
    assert space("rho", "1:2").values == (1.0, 1.25, 1.5, 1.75, 2.0)
    assert space("rho", "1:2:lin:3").values == space("rho", "1:2:3").values == (1.0, 1.5, 2.0)


def test_whole_numbers_stay_whole_and_come_once():
    found = space("local-steps", "1:4:log:9")
    assert found.values == (1, 2, 3, 4)
    assert all(type(value) is int for value in found.values)
    assert found.whole
    assert space("local-steps", "5,10").values == (5, 10)


def test_a_setting_that_is_text_takes_numbers_as_text():
    assert space("signals", "20:60:3").values == ("20", "40", "60")
    assert space("signals", "20,50").values == ("20", "50")


def test_values_are_typed_as_the_setting_is():
    assert space("method", "fedgl,igl").values == ("fedgl", "igl")
    assert space("secure-aggregation", "true,false").values == (True, False)
    assert space("rho", "1,2.5").values == (1.0, 2.5)
    assert space("rho", [1, np.float64(2.5)]).values == (1.0, 2.5)
    assert space("topology", "ring,random:3", "server-graph").values == ("ring", "random:3")


def test_a_list_may_have_ranges_in_it():
    found = space("rho", "0.5,1:2:3")
    assert found.values == (0.5, 1.0, 1.5, 2.0)
    assert not found.is_range


def test_text_with_commas_stands_in_quotes():
    assert space("signals", '"20,30","50"').values == ("20,30", "50")


def test_values_given_twice_are_tried_once():
    assert space("rho", "0.1,0.10,1e-1,2").values == (0.1, 2.0)


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("roh", "1:2", "roh: unknown setting.*did you mean 'rho'"),
        ("rho", "2:1", "rho=2:1: the range must go from"),
        ("rho", "0:1:log", "must begin above 0"),
        ("rho", "1:2:logg", "rho=1:2:logg: a range is"),
        ("rho", "1:2:log:1", "two points at least"),
        ("rho", "big,small", "rho='big': must be a number"),
        ("local-steps", "1.5:3", "whole number"),
        ("secure-aggregation", "0:1", "true or false"),
        ("epsilon", "0.1:10:log", "epsilon: more epsilon always scores better"),
        ("held-out", "0.1,0.2", "held-out: it decides"),
        ("privacy", "none,dp", "privacy: what is promised"),
        ("signals", "'20", "not a list of values"),
        ("rho", ",", "no values"),
    ],
)
def test_what_is_wrong_names_the_setting(key, text, says):
    with pytest.raises(ConfigError, match=says):
        space(key, text)


def test_the_word_auto_is_allowed_where_the_setting_allows_it(monkeypatch):
    from trellis.apps.consensus_graph.config import ConsensusGraphConfig

    monkeypatch.setattr(ConsensusGraphConfig, "auto_settings", ("rho",))
    assert space("rho", "auto,0.5").values == ("auto", 0.5)
    with pytest.raises(ConfigError, match="alpha='auto'"):
        space("alpha", "auto,0.5")


def test_options_become_a_mapping():
    assert read_over(["rho=1:2", f"{STUDY}.lambda = 0.1,1"], STUDY) == {
        "rho": "1:2",
        "lambda": "0.1,1",
    }
    for wrong in (["rho"], ["rho="]):
        with pytest.raises(ConfigError, match="write KEY="):
            read_over(wrong, STUDY)
    with pytest.raises(ConfigError, match="rho: given twice"):
        read_over(["rho=1", "rho=2"], STUDY)
    with pytest.raises(ConfigError, match="nothing to tune"):
        read_spaces(STUDY, {})


def test_the_size_of_a_grid():
    assert count_of(read_spaces(STUDY, {"rho": "1:2", "lambda": "0.1,1"})) == 10
