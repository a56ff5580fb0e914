"""Files with many graphs: one npz a client.

npz, of N graphs with n_1 + ... + n_N nodes in all (nodes count from 0, over all graphs):

    sizes (N,)   edges (E, 2)   features (sum n, f)   labels (N,)   node_labels (sum n,)

``edges`` lists every edge once with u < v, or all in both directions. The last three may be
missing; a label of -1 is unknown. For TUDataset's text files see `tudataset`, for one big citation
graph `planetoid`.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import write_atomically
from trellis.apps.common.tables import DataError

from ..graphs import UNKNOWN, Graph, Integers, labels_of, undirected

# What is said here stays on the device.
log = logging.getLogger("trellis.device")


def read_graphs(path: Path, *, symmetrise: bool = False, tolerant: bool = False) -> list[Graph]:
    """Read one client's npz file.

    Parameters
    ----------
    path : the file
    symmetrise : take directed edges as undirected ones
    tolerant : mend what one graph can have wrong instead of refusing it: a feature that is not
        finite counts as 0, a label below -1 as unknown, an edge to no node or to another graph is
        dropped, a directed one is taken as undirected

    Raises
    ------
    DataError
        For a missing or malformed file, naming the array and the row.
    """
    found = _load_npz(path)
    for name in ("sizes", "edges"):
        if name not in found:
            raise DataError(f"{path}: holds {', '.join(found) or 'nothing'}; needs {name!r}")
    sizes = _whole(path, "sizes", found["sizes"], (None,))
    if sizes.size == 0:
        raise DataError(f"{path}: no graphs; sizes is empty")
    if sizes.min() < 1:
        empty = int(np.flatnonzero(sizes < 1)[0])
        raise DataError(f"{path}: graph {empty + 1} has {sizes[empty]} nodes; leave it out")
    nodes, count = int(sizes.sum()), len(sizes)
    if tolerant:
        found, symmetrise = _mended(path, found, sizes), True
    pairs = _whole(path, "edges", found["edges"], (None, 2))
    features = found.get("features", np.zeros((nodes, 0), dtype=np.float32))
    if features.ndim != 2 or features.dtype.kind not in "fiub" or len(features) != nodes:
        raise DataError(
            f"{path}: features is {features.dtype} {features.shape}; numbers ({nodes}, f) are "
            f"needed, a row for each of the {nodes} nodes that sizes adds up to"
        )
    unknown = np.full(nodes, UNKNOWN)
    labels = _whole(path, "labels", found.get("labels", unknown[:count]), (count,))
    node_labels = _whole(path, "node_labels", found.get("node_labels", unknown), (nodes,))

    def where(row: int) -> str:
        return f"{path}: edges, row {row}"

    edges = undirected(pairs, nodes, where, once=True, symmetrise=symmetrise)
    refuse_bridges(pairs, np.repeat(np.arange(count) + 1, sizes), where)
    return cut(sizes, edges, features, labels, node_labels, f"{path}: graph")


def _mended(path: Path, found: dict[str, NDArray[Any]], sizes: Integers) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file without what single graphs have wrong; shapes stay."""
    kept = dict(found)
    pairs = np.asarray(found["edges"])
    if pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu":
        owner = np.repeat(np.arange(len(sizes)), sizes)
        inside = np.all((pairs >= 0) & (pairs < len(owner)), axis=1)
        ends = owner[np.where(inside[:, None], pairs, 0).astype(np.int64)]
        kept["edges"] = pairs[inside & (ends[:, 0] == ends[:, 1])]
    for name in ("labels", "node_labels"):
        if name in found and found[name].dtype.kind in "iu":
            kept[name] = np.maximum(found[name].astype(np.int64), UNKNOWN)
    if "features" in found and found["features"].dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            features = found["features"].astype(np.float32)
        kept["features"] = np.where(np.isfinite(features), features, np.float32(0.0))
    with np.errstate(over="ignore"):
        changed = [n for n in kept if not np.array_equal(kept[n], found[n].astype(kept[n].dtype))]
    if changed:
        log.warning("%s: entries of %s that cannot be used were mended", path, ", ".join(changed))
    return kept


def write_graphs(path: Path, graphs: Sequence[Graph]) -> None:
    """Write graphs as one client's npz file, whole or not at all."""
    widths = {graph.features.shape[1] for graph in graphs}
    if len(widths) != 1:
        raise DataError(f"{path}: graphs have {sorted(widths)} features; all need as many")
    file = io.BytesIO()
    np.savez_compressed(file, **graph_arrays(graphs))  # type: ignore[arg-type]
    write_atomically(path, file.getvalue())


def graph_arrays(graphs: Sequence[Graph]) -> dict[str, NDArray[Any]]:
    """Return the arrays of one client's npz file; all graphs have as many features."""
    sizes = np.array([graph.nodes for graph in graphs])
    starts = np.cumsum(sizes) - sizes
    return {
        "sizes": sizes,
        "edges": np.concatenate([g.edges + s for g, s in zip(graphs, starts, strict=True)]),
        "features": np.concatenate([graph.features for graph in graphs]),
        "labels": labels_of(graphs),
        "node_labels": np.concatenate([graph.node_labels for graph in graphs]),
    }


def cut(
    sizes: Integers,
    edges: Integers,
    features: NDArray[Any],
    labels: Integers,
    node_labels: Integers,
    source: str,
) -> list[Graph]:
    """Return the graphs of arrays over all nodes, which stand in the order of the graphs."""
    ends = np.cumsum(sizes)
    starts = ends - sizes
    # Edges are sorted by their first node, so those of one graph stand together.
    cuts = np.searchsorted(edges[:, 0], ends)
    parts = np.split(edges, cuts[:-1])
    with np.errstate(over="ignore"):  # a number too large is refused as infinite, by name
        features = features.astype(np.float32)
    return [
        Graph(part - start, features[start:end], int(label), node_labels[start:end], name)
        for part, start, end, label, name in zip(
            parts,
            starts,
            ends,
            labels,
            (f"{source} {number + 1}" for number in range(len(sizes))),
            strict=True,
        )
    ]


def refuse_bridges(
    pairs: Integers, owners: Integers, where: Callable[[int], str], first: int = 0
) -> None:
    """Refuse pairs of nodes (E, 2) whose ends are in different graphs ``owners`` (n,)."""
    ends = owners[pairs - first]
    bridges = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if bridges.size:
        (u, v), (a, b) = pairs[bridges[0]], ends[bridges[0]]
        raise DataError(
            f"{where(int(bridges[0]))}: edge ({u}, {v}) joins graph {a} and graph {b}; an edge "
            "lies in one graph"
        )


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise DataError(f"{path}: not a readable npz file ({error})") from None


def _whole(path: Path, name: str, found: NDArray[Any], shape: tuple[int | None, ...]) -> Integers:
    """Return an array of whole numbers of a shape, None for any length."""
    if found.size == 0 and shape == (None, 2):
        return np.empty((0, 2), dtype=np.int64)  # numpy's empty arrays are floats, and flat
    fits = len(shape) == found.ndim and all(
        wanted in (None, length) for wanted, length in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.kind not in "iu":
        wanted = ", ".join("any" if length is None else str(length) for length in shape)
        raise DataError(
            f"{path}: {name} is {found.dtype} {found.shape}; whole numbers ({wanted}) are needed"
        )
    numbers = found.astype(np.int64)
    if name.endswith("labels") and numbers.size and numbers.min() < UNKNOWN:
        row = int(numbers.argmin())
        raise DataError(f"{path}: {name}, row {row} is {numbers[row]}; labels count from 0")
    return numbers
