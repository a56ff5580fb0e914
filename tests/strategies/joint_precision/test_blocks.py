"""Packed matrices: there and back, blocks, and variables alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.path import pair_index


def block_matrix(labels, rng):
    p = len(labels)
    matrix = rng.normal(size=(p, p))
    matrix = matrix + matrix.T
    matrix[labels[:, None] != labels[None, :]] = 0.0
    alone = [j for j in range(p) if np.sum(labels == labels[j]) == 1]
    matrix[alone, alone] = 1.0
    return matrix


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_a_matrix_that_respects_the_blocks_survives(labels):
    labels = np.array(labels)
    blocks = Blocks(labels)
    matrix = block_matrix(labels, np.random.default_rng(0))
    packed = blocks.pack(matrix)
    assert packed.shape == (blocks.size,)
    np.testing.assert_array_equal(blocks.unpack(packed), matrix)
    together = np.concatenate([blocks.diagonal, blocks.off_diagonal])
    assert sorted(together.tolist()) == list(range(blocks.size))
    for number, group in enumerate(blocks.members):
        part = blocks.block(packed, number)
        np.testing.assert_array_equal(part, matrix[np.ix_(group, group)])
        start, stop = blocks.starts[number : number + 2]
        np.testing.assert_array_equal(blocks.upper(part, number), packed[start:stop])


def test_one_block_is_the_upper_triangle_row_by_row():
    blocks = Blocks.whole(4)
    assert blocks.size == 10
    np.testing.assert_array_equal(blocks.ends, np.triu_indices(4))


def test_components_are_those_of_the_graph():
    blocks = Blocks.components(6, np.array([0, 4]), np.array([2, 2]))
    assert [group.tolist() for group in blocks.members] == [[0, 2, 4]]
    assert blocks.alone.tolist() == [1, 3, 5]
    assert blocks.size == 6


def test_nothing_travels_where_every_variable_is_alone():
    blocks = Blocks.components(3, np.array([], dtype=int), np.array([], dtype=int))
    assert blocks.size == 0
    np.testing.assert_array_equal(blocks.unpack(np.zeros((2, 0))), np.tile(np.eye(3), (2, 1, 1)))


def test_the_same_labels_give_the_same_object():
    assert Blocks.whole(7) is Blocks.whole(7)
    labels = np.array([0, 1, 0], dtype=np.int64)
    assert Blocks.of(labels) is Blocks.of(labels.astype(np.int32))


@pytest.mark.parametrize("p", [2, 3, 10])
def test_pairs_are_numbered_as_numpy_numbers_the_upper_triangle(p):
    rows, columns = np.triu_indices(p, 1)
    np.testing.assert_array_equal(pair_index(rows, columns, p), np.arange(rows.size))
