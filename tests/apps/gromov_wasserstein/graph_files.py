"""Small data sets of graphs to write, and the real ones where they are there."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset

# Graph 1 is a path 1-2-3, graph 2 one node, graph 3 an edge and an isolated node.
TINY = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n2\n3\n3\n3\n",
    "graph_labels": "-1\n1\n1\n",
    "node_labels": "3\n1\n3\n1\n4\n1\n1\n",
    "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n5, 6\n6, 7\n",
}


def tiny(folder: Path, **changes) -> Path:
    for name, text in (TINY | changes).items():
        if text is not None:
            (folder / f"TINY_{name}.txt").write_text(text)
    return folder


def planetoid(folder: Path, **changes) -> Path:
    """Write 504 known nodes, test nodes 504, 505 and 507; 506 has no record."""
    rng = np.random.default_rng(1)
    labels = np.eye(2, dtype=np.int32)[rng.integers(0, 2, 504)]
    links = defaultdict(list, {i: [i + 1] for i in range(504)})
    links[3].append(3)
    files = {
        "x": sparse.csr_matrix(np.ones((4, 3), dtype=np.float32)),
        "y": labels[:4],
        "allx": sparse.csr_matrix(rng.integers(0, 2, (504, 3)).astype(np.float32)),
        "ally": labels,
        "tx": sparse.csr_matrix(np.array([[7.0, 0, 0], [4, 0, 0], [5, 0, 0]])),
        "ty": np.array([[0, 1], [1, 0], [0, 1]]),
        "graph": links,
    } | changes
    for name, value in files.items():
        data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=3)
        (folder / f"ind.small.{name}").write_bytes(data)
    (folder / "ind.small.test.index").write_text("507\n504\n505\n")
    return folder


def real(name: str) -> Path:
    try:
        return dataset(name)
    except DataError as error:
        pytest.skip(str(error))
