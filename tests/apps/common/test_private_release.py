"""What one record can do to a clipped statistic, for data and settings of any size."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trellis.apps.common.tables import DataError, read_table, read_tolerantly
from trellis.apps.consensus_graph.problem import sensitivity, statistic

# Every float there is, and more often those of ordinary size and those where powers are none.
NUMBERS = st.one_of(
    st.floats(),
    st.floats(-10.0, 10.0),
    st.sampled_from([1e155, -1e155, 1.7e308, 1e77, 1e61, 1e59, 1e-59, 1e-61, 1e-82, 1e-300, 0.0]),
)


@st.composite
def neighbouring(draw):
    """Return two tables of the same shape, one row of which differs."""
    shape = draw(st.integers(2, 6)), draw(st.integers(2, 5))
    table = draw(arrays.arrays(np.float64, shape, elements=NUMBERS))
    other = table.copy()
    other[draw(st.integers(0, shape[0] - 1))] = draw(
        arrays.arrays(np.float64, shape[1], elements=NUMBERS)
    )
    return table, other


def as_read(values, folder):
    np.savez(folder / "x.npz", X=values)
    return read_tolerantly(folder / "x.npz").values


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@settings(max_examples=150, deadline=None)
@given(pair=neighbouring(), exponent=st.floats(-100.0, 100.0))
def test_no_record_moves_the_statistic_further_than_is_said(folder, pair, exponent):
    clip = min(max(10.0**exponent, 1e-100), 1e100)
    first, second = (statistic(as_read(values, folder), clip) for values in pair)
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    scale = sensitivity(clip, len(pair[0]))
    # In units of the bound: squares of 1e-100 are no floats.
    assert np.linalg.norm((first - second) / scale) <= 1.0 + 1e-9


def test_ordinary_data_takes_no_detour():
    """What the formulas give as they stand, up to rounding."""
    signals = np.random.default_rng(0).normal(3.0, 5.0, (200, 6))
    centred = signals - signals.mean(axis=1, keepdims=True)
    squares = centred * centred
    m1, m2 = centred.sum(axis=1), squares.sum(axis=1)
    m3, m4 = (squares * centred).sum(axis=1), (squares * squares).sum(axis=1)
    norms = np.sqrt(np.maximum(6 * m4 - 4.0 * m1 * m3 + 3.0 * m2 * m2, 0.0))
    centred *= np.sqrt(np.minimum(1.0, 25.0 / np.maximum(norms, 1e-300)))[:, None]
    gram = centred.T @ centred
    diagonal = np.diagonal(gram)
    z = (diagonal[:, None] + diagonal[None, :] - 2.0 * gram)[np.triu_indices(6, 1)] / 200
    np.testing.assert_allclose(statistic(signals, 25.0), np.maximum(z, 0.0), rtol=1e-13)


def test_odd_signals_are_clipped_as_their_ordinary_images_are():
    unit = np.array([[0.3, 0.7, -0.2, 1.0], [1.0, -1.0, 0.5, 0.25]])
    expected = statistic(unit * 2.0**40, 5.0)
    for exponent in (250, 700, 1023):
        np.testing.assert_allclose(statistic(unit * 2.0**exponent, 5.0), expected, rtol=1e-14)
    np.testing.assert_array_equal(statistic(np.full((2, 4), 1.7e308), 5.0), 0.0)


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,x\n3,4\n", [[1, 0], [3, 4]]),
        ("a,b\n1,\n3,4\n", [[1, 0], [3, 4]]),
        ("a,b\n1\n3,4\n", [[1, 0], [3, 4]]),
        ("a,b\n1,2,9\n3,4\n", [[1, 2], [3, 4]]),
        ("a,b\n1,nan\n3,1e999\n", [[1, 0], [3, 0]]),
        ('a,b\n1,"2\n3,4\n', [[1, 2], [3, 4]]),
        ("a,b\n1,1_0\n3,4\n", [[1, 10], [3, 4]]),
    ],
)
def test_cells_that_are_no_numbers_count_as_zero_and_only_the_device_hears_of_it(
    text, rows, tmp_path, caplog
):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with caplog.at_level(logging.WARNING, "trellis.device"):
        np.testing.assert_array_equal(read_tolerantly(path).values, rows)
    assert bool(caplog.records) == (0 in np.array(rows))
    assert "x" not in caplog.messages
    path.write_bytes(b"a,b\n1,\xff\xfe\n3,4\n")
    np.testing.assert_array_equal(read_tolerantly(path).values, [[1, 0], [3, 4]])


def test_a_good_file_is_read_as_ever(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a, "b"\n1, 2e-3\n"3",-4\n\n5,.1\n')
    assert read_tolerantly(path).digest() == read_table(path).digest()


@pytest.mark.parametrize(
    "text", ["", "a,a\n1,2\n3,4\n", "1,2\n3,4\n5,6\n", "a,b\n1,2\n", "a\n1\n2\n"]
)
def test_what_all_records_share_is_still_refused(text, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError):
        read_tolerantly(tmp_path / "t.csv")


def test_arrays_of_text_are_read_and_others_refused(tmp_path):
    for kind in ("U8", "S8"):
        np.savez(tmp_path / "t.npz", X=np.array([["1", "x"], ["2.5", "-3"]], dtype=kind))
        np.testing.assert_array_equal(
            read_tolerantly(tmp_path / "t.npz").values, [[1, 0], [2.5, -3]]
        )
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2), dtype=complex))
    with pytest.raises(DataError, match="a table of numbers"):
        read_tolerantly(tmp_path / "t.npz")
