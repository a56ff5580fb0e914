"""Offsets and scales: applied record by record, found in three ways, refused where they are bad."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.own_data import units
from trellis.apps.common.own_data.scaling import (
    Scaling,
    parsed_scales,
    public_scaling,
    scales_by_value,
)
from trellis.apps.common.settings import ConfigError
from trellis.apps.server_graph.config import ServerGraphConfig

RNG = np.random.default_rng(0)
# Units from 1e-9 to 1e9, one column far from zero, one of both signs.
X = RNG.normal(size=(300, 4)) * [1e-9, 1.0, 1e9, 3.0] + [5e-9, 0.0, 2e9, 1e4]
Y = 40.0 + 7.0 * RNG.normal(size=300)
PARTS = np.array_split(np.arange(300), 7)


def expected() -> Scaling:
    return Scaling(X.mean(axis=0), X.std(axis=0), float(Y.mean()), float(Y.std()))


def same(found: Scaling, accuracy: float) -> None:
    wanted = expected().as_arrays()
    for name, array in found.as_arrays().items():
        np.testing.assert_allclose(array, wanted[name], rtol=accuracy, atol=accuracy * 1e-9)


def test_what_clients_tell_adds_up_to_mean_and_deviation_of_all_records():
    told = [units.own_moments(units.columns_of(X[p], Y[p], True)) for p in PARTS]
    same(units.pooled(told, True), 1e-9)


def test_one_sum_holds_features_of_any_units():
    parts = [units.summands(units.columns_of(X[p], Y[p], True)) for p in PARTS]
    rounded = {
        name: sum(np.round(part[name] * 2.0**32) for part in parts) / 2.0**32 for name in parts[0]
    }
    same(units.from_sum(rounded, True), 1e-4)


def test_noisy_counts_find_the_octave_and_the_side_or_say_what_is_hidden():
    values = np.column_stack([np.abs(X[:, 0]), X[:, 1], -np.abs(X[:, 2]), 1e3 * X[:, 1]])
    many = np.tile(values, (40, 1))
    total = units.sign_counts(many)
    noise = RNG.normal(size=total.shape) * 50.0
    found, hidden = units.from_counts(total + noise, 50.0, False)
    sizes = np.exp(np.mean(np.log(np.abs(values)), axis=0))
    # What is beyond the ends of the octaves stands at none of them.
    assert hidden == [0, 2]
    assert np.all(np.abs(np.log2(found.scale[[1, 3]] / sizes[[1, 3]])) < 1.5)
    assert found.scale[0] == found.scale[2] == found.scale[3]
    assert np.all(found.offset == 0.0)
    shifted, none = units.from_counts(units.sign_counts(-X[:, 3:]), 1.0, False)
    assert not none
    np.testing.assert_allclose(shifted.offset, -1e4, rtol=0.1)


def test_one_record_moves_counts_by_no_more_than_their_sensitivity():
    rows = np.array([[1e-5, -3.0, 1e6], [7.0, 3.0, -1e-6], [0.0, 1e300, 1.5]])
    counts = [units.sign_counts(row[None]) for row in rows]
    bound = units.sensitivity_of_counts(3)
    apart = [np.linalg.norm(a - b) for a in counts for b in counts]
    assert max(apart) <= bound
    assert max(apart) > 0.7 * bound
    assert all(part.sum() == pytest.approx(3.0) for part in counts)


def test_records_are_mapped_each_by_itself_and_coefficients_go_back():
    scaling = expected()
    Z = scaling.apply(X)
    assert Z.shape == (300, 5)
    np.testing.assert_array_equal(Z[17], scaling.apply(X[17:18])[0])
    np.testing.assert_allclose(Z[:, :4].std(axis=0), 1.0)
    np.testing.assert_array_equal(Z[:, 4], 1.0)
    w = RNG.normal(size=(2, 5))
    slopes, intercepts = scaling.raw_coefficients(w)
    raw = X @ slopes.T + intercepts
    np.testing.assert_allclose(raw, scaling.in_units(Z @ w.T), rtol=1e-6)
    again = Scaling.from_arrays(scaling.as_arrays(), 4)
    np.testing.assert_array_equal(again.apply(X), Z)
    assert Scaling.from_arrays({"model": w}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"scale": np.array([1.0, 1.0, 1.0, np.nan])},
        {"scale": np.array([1.0, 1.0, 0.0, 1.0])},
        {"scale": np.array([1.0, -1.0, 1.0, 1.0])},
        {"scale": np.array([1.0, 1e-300, 1.0, 1.0])},
        {"scale": np.ones(3)},
        {"scale": np.ones((4, 1))},
        {"scale": np.ones(4, dtype=np.int64)},
        {"offset": np.array([0.0, np.inf, 0.0, 0.0])},
        {"offset": np.zeros(5)},
        {"target": np.array([0.0, 0.0])},
        {"target": np.array([np.nan, 1.0])},
        {"target": np.zeros(3)},
    ],
    ids=str,
)
def test_a_malicious_scale_is_refused(change):
    with pytest.raises(ValueError, match=r"scale|offset|target"):
        Scaling.from_arrays({**expected().as_arrays(), **change}, 4)


def test_a_constant_column_has_a_scale():
    columns = np.column_stack([np.full(20, 7.0), np.zeros(20), np.arange(20.0)])
    found = units.pooled([units.own_moments(columns)], False)
    Z = found.apply(columns)
    assert np.all(np.isfinite(Z))
    np.testing.assert_array_equal(Z[:, :2], 0.0)


def test_public_scales_are_read_from_text_and_from_a_file(tmp_path):
    text = 'age:50:15,"blood, mean:-1:2.5",a:b:0:1,y:100:20'
    assert parsed_scales(text)["blood, mean"] == (-1.0, 2.5)
    assert parsed_scales(text)["a:b"] == (0.0, 1.0)
    path = tmp_path / "scales.csv"
    path.write_text('name,offset,scale\nage,50,15\n"blood, mean",-1,2.5\na:b,0,1\ny,100,20\n')
    assert parsed_scales(scales_by_value(str(path))) == parsed_scales(text)
    found = public_scaling(text, ["blood, mean", "age", "a:b"], numbers=True)
    assert found.offset.tolist() == [-1.0, 50.0, 0.0]
    assert (found.target_offset, found.target_scale) == (100.0, 20.0)
    with pytest.raises(ConfigError, match=r"lacks \['height'\]"):
        public_scaling(text, ["age", "blood, mean", "a:b", "height"], numbers=False)
    with pytest.raises(ConfigError, match=r"names \['a:b'\]"):
        public_scaling(text, ["age", "blood, mean"], numbers=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"standardise": "public"}, "needs scales"),
        ({"scales": "a:0:1"}, "they are for public or auto"),
        ({"standardise": "public", "scales": "a:0"}, "is not name:offset:scale"),
        ({"standardise": "public", "scales": "a:0:-1"}, "scale finite and > 0"),
        ({"standardise": "public", "scales": "a:0:1,a:0:1"}, "named twice"),
        ({"standardise": "mine"}, "use one of none, shared, public, auto"),
        (
            {"standardise": "shared", "privacy": "paper", "clip": 1.0},
            "no counted release for it",
        ),
    ],
)
def test_settings_that_cannot_be_standardised_by_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ServerGraphConfig.from_settings(settings)


def test_how_features_are_standardised_goes_by_what_may_be_told():
    def way(apart=False, **settings):
        return ServerGraphConfig.from_settings({"standardise": "auto", **settings}).units(apart)

    assert way() == "summed"
    assert way(method="none") == "told"
    assert way(privacy="dp") == "noisy"
    assert way(privacy="paper", clip=1.0) == "none"
    assert way(True) == "none"
    assert way(True, scales="a:0:1") == way(privacy="dp", scales="a:0:1") == "public"
    assert way(standardise="none") == "none"


@pytest.mark.parametrize("numbers", [True, False])
def test_what_a_client_learns_alone_does_not_depend_on_the_scale_of_all(numbers):
    """Of a scale that noise has spoiled a client alone knows nothing."""
    records = X[:, 1:2] + RNG.normal(size=(300, 3))
    targets = records @ [1.0, -2.0, 0.5] + 3.0

    def fit(Z, z):  # a ridge, which does depend on the units
        return np.linalg.solve(Z.T @ Z + 30.0 * np.eye(Z.shape[1]), Z.T @ z)

    found = []
    for scaling in (
        Scaling(np.zeros(3), np.ones(3)),
        Scaling(np.array([9.0, 0, -1]), [1e-3, 1, 50]),
    ):
        Z = scaling.apply(records)
        found.append(Z @ units.learned_in_own_units(fit, Z, targets, numbers))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    if numbers:
        assert np.corrcoef(found[0], targets)[0, 1] > 0.95
