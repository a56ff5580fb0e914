"""Symmetric matrices as vectors: the upper triangles of the blocks that can be connected.

Variables fall into blocks with nothing but zeros between them. What travels and what the server
keeps is, for every block of two variables or more, its upper triangle with the diagonal, row by
row. A variable alone in its block has a known entry, 1 / S_jj = 1, which never travels.

    p : variables,  m : numbers in a packed matrix,  m = p (p + 1) / 2 where there is one block
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.components import component_labels

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]

# From this size on a triangle is copied row by row: a block's indices would take twice its memory.
_ROW_BY_ROW = 256
_TILE = 256


class Blocks:
    """A partition of p variables and the vector form of matrices that respect it.

    Parameters
    ----------
    labels : (p,)
        Variables with equal labels are in one block.
    """

    def __init__(self, labels: NDArray[np.integer]) -> None:
        self.labels = np.asarray(labels, dtype=np.int32)
        order = np.argsort(self.labels, kind="stable")
        cuts = np.flatnonzero(np.diff(self.labels[order])) + 1
        groups = np.split(order, cuts) if order.size else []
        self.members: list[Indices] = [group for group in groups if group.size > 1]
        self.alone: Indices = np.array([g[0] for g in groups if g.size == 1], dtype=np.intp)
        sizes = [group.size * (group.size + 1) // 2 for group in self.members]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)

    @classmethod
    def whole(cls, variables: int) -> Blocks:
        """Return the partition with one block."""
        return cls.of(np.zeros(variables, dtype=np.int32))

    @classmethod
    def of(cls, labels: NDArray[np.integer]) -> Blocks:
        """Return the partition of these labels; the same object for the same labels."""
        return _known(np.ascontiguousarray(labels, dtype=np.int32).tobytes())

    @classmethod
    def components(cls, variables: int, rows: Indices, columns: Indices) -> Blocks:
        """Return the connected components of the graph with these edges."""
        return cls(component_labels(variables, rows, columns))

    @classmethod
    def joined(cls, partitions: Sequence[Blocks]) -> Blocks:
        """Return the finest partition whose blocks hold those of all ``partitions``."""
        if all(np.array_equal(one.labels, partitions[0].labels) for one in partitions):
            return partitions[0]
        heads = [np.repeat(g[0], g.size - 1) for one in partitions for g in one.members]
        others = [group[1:] for one in partitions for group in one.members]
        nothing = np.zeros(0, dtype=np.intp)
        rows, columns = np.concatenate([nothing, *heads]), np.concatenate([nothing, *others])
        return cls.components(partitions[0].variables, rows, columns)

    @property
    def variables(self) -> int:
        """The number of variables p."""
        return self.labels.size

    @property
    def size(self) -> int:
        """The length m of a packed matrix."""
        return int(self.starts[-1])

    @cached_property
    def ends(self) -> tuple[Indices, Indices]:
        """Row and column (m,) of every entry of a packed matrix."""
        pairs = [np.triu_indices(group.size) for group in self.members]
        blocks = list(zip(self.members, pairs, strict=True))
        rows = [group[first] for group, (first, _) in blocks]
        columns = [group[second] for group, (_, second) in blocks]
        nothing = np.zeros(0, dtype=np.intp)
        return np.concatenate([nothing, *rows]), np.concatenate([nothing, *columns])

    @cached_property
    def diagonal(self) -> Indices:
        """Where the diagonal's entries stand in a packed matrix."""
        rows = (np.concatenate([[0], np.arange(group.size, 1, -1)]) for group in self.members)
        places = [start + np.cumsum(row) for start, row in zip(self.starts, rows, strict=False)]
        return np.concatenate([np.zeros(0, dtype=np.intp), *places])

    @cached_property
    def off_diagonal(self) -> Indices:
        """Where the others stand."""
        others = np.ones(self.size, dtype=bool)
        others[self.diagonal] = False
        return np.flatnonzero(others)

    def pack(self, matrix: Matrix) -> Vector:
        """Return the packed form (..., m) of symmetric matrices (..., p, p)."""
        if self._large:
            packed = np.empty((*matrix.shape[:-2], self.size))
            for row, columns, place in self._rows():
                packed[..., place] = matrix[..., row, columns]
            return packed
        rows, columns = self.ends
        return np.ascontiguousarray(matrix[..., rows, columns])

    def unpack(self, packed: Vector) -> Matrix:
        """Return the symmetric matrices (..., p, p) of packed ones (..., m)."""
        p = self.variables
        matrix = np.zeros((*packed.shape[:-1], p, p))
        if self._large:
            for row, columns, place in self._rows():
                matrix[..., row, columns] = packed[..., place]
                matrix[..., columns, row] = packed[..., place]
        else:
            rows, columns = self.ends
            matrix[..., rows, columns] = packed
            matrix[..., columns, rows] = packed
        matrix[..., self.alone, self.alone] = 1.0
        return matrix

    def repacked(self, packed: Vector, other: Blocks) -> Vector:
        """Return matrices (..., m) that ``other``, a finer partition or this one, has packed."""
        if np.array_equal(other.labels, self.labels):
            return packed
        found = np.zeros((*packed.shape[:-1], self.size))
        found[..., self.diagonal] = 1.0
        found[..., self._place(*other.ends)] = packed
        return found

    def _place(self, rows: Indices, columns: Indices) -> Indices:
        """Return where pairs (row <= column), each within a block, stand in a packed matrix."""
        start, within, size = (np.zeros(self.variables, dtype=np.intp) for _ in range(3))
        for group, first in zip(self.members, self.starts, strict=False):
            start[group], within[group], size[group] = first, np.arange(group.size), group.size
        i, j = within[rows], within[columns]
        return start[rows] + i * size[rows] - i * (i - 1) // 2 + j - i

    @property
    def _large(self) -> bool:
        return any(group.size >= _ROW_BY_ROW for group in self.members)

    def _rows(self) -> Iterator[tuple[int, Indices, slice]]:
        """Yield every row of every block: its variable, those from it on, their packed place."""
        for group, start in zip(self.members, self.starts, strict=False):
            for row in range(group.size):
                stop = start + group.size - row
                yield int(group[row]), group[row:], slice(int(start), int(stop))
                start = stop

    def block(self, packed: Vector, number: int) -> Matrix:
        """Return one block (b, b) of a packed matrix (m,), filled on both sides."""
        size = self.members[number].size
        triangle = packed[self.starts[number] : self.starts[number + 1]]
        block = np.empty((size, size))
        if size >= _ROW_BY_ROW:
            _fill(block, triangle)
            return block
        flat = self._places[size]
        block.ravel()[flat[0]] = triangle
        block.ravel()[flat[1]] = triangle
        return block

    def upper(self, block: Matrix, number: int) -> Vector:
        """Return the packed form of one block."""
        if len(block) >= _ROW_BY_ROW:
            return np.concatenate([row[start:] for start, row in enumerate(block)])
        return block.ravel()[self._places[len(block)][0]]

    def cut(self, matrix: Matrix) -> list[Matrix]:
        """Return the blocks (b, b) of a matrix (p, p); the matrix itself where it is one block."""
        if len(self.members) == 1 and not self.alone.size:
            return [matrix]
        return [matrix[np.ix_(group, group)] for group in self.members]

    @cached_property
    def _places(self) -> dict[int, tuple[Indices, Indices]]:
        """Flat positions of a block's upper triangle and of its mirror image, by its size."""
        places: dict[int, tuple[Indices, Indices]] = {}
        for size in {group.size for group in self.members if group.size < _ROW_BY_ROW}:
            first, second = np.triu_indices(size)
            places[size] = (first * size + second, second * size + first)
        return places


def _fill(block: Matrix, triangle: Vector) -> None:
    """Write an upper triangle, row by row, into both sides of a matrix, with no other memory."""
    size, start = len(block), 0
    for row in range(size):
        block[row, row:] = triangle[start : start + size - row]
        start += size - row
    mirror(block)


def above_diagonal(matrix: Matrix) -> Vector:
    """Return the entries above a matrix's diagonal, row by row."""
    rows = [row[start + 1 :] for start, row in enumerate(matrix)]
    return np.concatenate([np.zeros(0), *rows])


def mirror(matrix: Matrix) -> None:
    """Write the upper triangle of a matrix into its lower one."""
    size = len(matrix)
    for first in range(0, size, _TILE):
        rows = slice(first, min(size, first + _TILE))
        tile = matrix[rows, rows]
        below = np.tril_indices(len(tile), -1)
        tile[below] = tile.T[below]
        for second in range(rows.stop, size, _TILE):
            columns = slice(second, min(size, second + _TILE))
            matrix[columns, rows] = matrix[rows, columns].T


@lru_cache(maxsize=8)
def _known(labels: bytes) -> Blocks:
    # A client sees the same blocks in every message, and their indices take a while to make.
    return Blocks(np.frombuffer(labels, dtype=np.int32))
