"""Which records a device holds out: by place and by its secret, never by what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.evaluation.holding import held_out_rows, split
from trellis.apps.common.node import Node
from trellis.apps.common.tables import DataError, Table

SIMULATED = Node("x", 0, None, None, True)


def device(folder):
    return Node("x", 0, folder / "x.npz", folder / "state", False)


def test_in_a_simulation_they_come_from_the_seed():
    rows = held_out_rows(50, 10, SIMULATED, 3)
    assert rows.sum() == 10
    np.testing.assert_array_equal(rows, held_out_rows(50, 10, SIMULATED, 3))
    assert not np.array_equal(rows, held_out_rows(50, 10, SIMULATED, 4))


def test_on_a_device_they_come_from_its_secret_whatever_the_seed(tmp_path):
    one, two = device(tmp_path / "one"), device(tmp_path / "two")
    rows = held_out_rows(50, 10, one, 3)
    np.testing.assert_array_equal(rows, held_out_rows(50, 10, one, 4))
    assert not np.array_equal(rows, held_out_rows(50, 10, two, 3))
    # A larger share holds out the same rows and more: what is held out stays so.
    assert np.all(held_out_rows(50, 20, one, 3)[rows])


def test_a_table_is_split_whole(tmp_path):
    table = Table(np.arange(20.0).reshape(10, 2), ("a", "b"), "x")
    learning, held = split(table, 3, device(tmp_path), 1)
    assert len(learning.values) == 7
    both = np.vstack([learning.values, held])
    np.testing.assert_array_equal(np.sort(both, axis=0), table.values)
    assert split(table, 0, device(tmp_path), 1)[0] is table


def test_nothing_held_out_needs_no_secret(tmp_path):
    nowhere = Node("x", 0, tmp_path / "x.npz", None, False)
    assert not held_out_rows(5, 0, nowhere, 1).any()
    with pytest.raises(DataError, match="set state-path"):
        held_out_rows(5, 1, nowhere, 1)
