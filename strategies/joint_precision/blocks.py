"""Symmetric matrices as vectors: the upper triangles of the blocks that can be connected.

Variables fall into blocks with nothing but zeros between them. What travels and what the server
keeps is, for every block of two variables or more, its upper triangle with the diagonal, row by
row. A variable alone in its block has a known entry, 1 / S_jj = 1, which never travels.

    p : variables,  m : numbers in a packed matrix,  m = p (p + 1) / 2 where there is one block
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


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
        # Here: clients use blocks as well, and are told theirs.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        links = coo_array((np.ones(len(rows)), (rows, columns)), shape=(variables, variables))
        return cls(connected_components(links, directed=False)[1])

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
        rows, columns = self.ends
        return np.flatnonzero(rows == columns)

    @cached_property
    def off_diagonal(self) -> Indices:
        """Where the others stand."""
        rows, columns = self.ends
        return np.flatnonzero(rows != columns)

    def pack(self, matrix: Matrix) -> Vector:
        """Return the packed form (..., m) of symmetric matrices (..., p, p)."""
        rows, columns = self.ends
        return np.ascontiguousarray(matrix[..., rows, columns])

    def unpack(self, packed: Vector) -> Matrix:
        """Return the symmetric matrices (..., p, p) of packed ones (..., m)."""
        rows, columns = self.ends
        p = self.variables
        matrix = np.zeros((*packed.shape[:-1], p, p))
        matrix[..., rows, columns] = packed
        matrix[..., columns, rows] = packed
        matrix[..., self.alone, self.alone] = 1.0
        return matrix

    def block(self, packed: Vector, number: int) -> Matrix:
        """Return one block (b, b) of a packed matrix (m,), filled on both sides."""
        flat, size = self._places[number], self.members[number].size
        triangle = packed[self.starts[number] : self.starts[number + 1]]
        block = np.empty((size, size))
        block.ravel()[flat[0]] = triangle
        block.ravel()[flat[1]] = triangle
        return block

    def upper(self, block: Matrix, number: int) -> Vector:
        """Return the packed form of one block."""
        return block.ravel()[self._places[number][0]]

    @cached_property
    def _places(self) -> list[tuple[Indices, Indices]]:
        """Flat positions of a block's upper triangle and of its mirror image."""
        places: dict[int, tuple[Indices, Indices]] = {}
        for group in self.members:
            size = group.size
            if size not in places:
                first, second = np.triu_indices(size)
                places[size] = (first * size + second, second * size + first)
        return [places[group.size] for group in self.members]


@lru_cache(maxsize=8)
def _known(labels: bytes) -> Blocks:
    # A client sees the same blocks in every message, and their indices take a while to make.
    return Blocks(np.frombuffer(labels, dtype=np.int32))
