from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.strategies.joint_precision.blocks import Blocks
from trellis.strategies.joint_precision.path import pair_ends, pair_index
from trellis.strategies.joint_precision.prox import PENALTIES
from trellis.strategies.joint_precision.screening import cut_of, joint_blocks


@pytest.mark.parametrize("variables", [2, 3, 7, 40])
def test_pairs_and_their_ends(variables):
    rows, columns = np.triu_indices(variables, 1)
    pairs = np.arange(rows.size)
    assert np.array_equal(pair_index(rows, columns, variables), pairs)
    found = pair_ends(pairs, variables)
    assert np.array_equal(found[0], rows)
    assert np.array_equal(found[1], columns)
    assert pair_ends(np.zeros(0, dtype=np.int32), variables)[0].size == 0


@settings(max_examples=60, deadline=None)
@given(
    penalty=st.sampled_from(["group", "fused"]),
    clients=st.integers(1, 4),
    lambda1=st.floats(0.05, 0.6),
    lambda2=st.floats(0.0, 0.3),
    seed=st.integers(0, 10_000),
)
def test_what_is_not_told_never_splits_a_block(penalty, clients, lambda1, lambda2, seed):
    rng = np.random.default_rng(seed)
    p = 9
    values = rng.uniform(-1, 1, size=(clients, p * (p - 1) // 2)) ** 3
    weights = rng.uniform(0.5, 1.5, size=clients)
    rule, pairs = PENALTIES[penalty], np.arange(values.shape[1])
    exact, largest = joint_blocks(
        p, [(pairs, row) for row in values], weights, rule, lambda1, lambda2
    )
    cut = cut_of(penalty, lambda1)
    told = []
    for row, weight in zip(values, weights, strict=True):
        large = np.flatnonzero(np.abs(row) > cut / weight)
        told.append((large, row[large]))
    found, again = joint_blocks(p, told, weights, rule, lambda1, lambda2, cut)
    # The blocks of all entries lie within those of the entries that were told.
    assert Blocks.joined([found, exact]).size == found.size
    if penalty == "group":
        assert np.array_equal(found.labels, exact.labels)
    if largest > cut:
        assert again == largest


def test_partitions_are_joined_and_matrices_repacked():
    first, second = Blocks(np.array([0, 0, 1, 2, 3])), Blocks(np.array([0, 1, 2, 2, 3]))
    both = Blocks.joined([first, second])
    assert np.array_equal(both.labels, [0, 0, 1, 1, 2])
    matrix = np.eye(5)
    matrix[0, 1] = matrix[1, 0] = 0.5
    matrix[1, 1] = 3.0
    packed = both.repacked(first.pack(matrix), first)
    assert np.array_equal(both.unpack(packed), matrix)


@pytest.mark.parametrize("size", [3, 255, 256, 300])
def test_large_blocks_are_packed_as_small_ones(size):
    rng = np.random.default_rng(size)
    labels = np.concatenate([np.zeros(size, dtype=int), [1, 2, 2]])[rng.permutation(size + 3)]
    blocks = Blocks(labels)
    matrix = rng.normal(size=(size + 3, size + 3))
    matrix = np.where(labels[:, None] == labels, matrix + matrix.T, 0.0)
    matrix[labels == 1, labels == 1] = 1.0
    packed = blocks.pack(matrix)
    assert np.array_equal(packed, matrix[blocks.ends])
    assert np.array_equal(blocks.unpack(packed), matrix)
    assert np.array_equal(blocks.unpack(np.stack([packed, packed]))[1], matrix)
    for number, group in enumerate(blocks.members):
        block = blocks.block(packed, number)
        assert np.array_equal(block, matrix[np.ix_(group, group)])
        start, stop = blocks.starts[number : number + 2]
        assert np.array_equal(blocks.upper(block, number), packed[start:stop])
    rows, columns = blocks.ends
    assert np.array_equal(blocks.diagonal, np.flatnonzero(rows == columns))
    assert np.array_equal(blocks.off_diagonal, np.flatnonzero(rows != columns))
