"""The paper's experiments on real data (Sec. V-C); the data sets are not part of the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from apps.common.metrics import edges, matthews, relative_error
from apps.common.results import metrics_csv, write_atomically
from apps.common.seeds import generator
from apps.experiments.datasets import dataset
from apps.experiments.sweep import run_on
from apps.pages.plots import curves, save, two_colour_graph

from ..config import ConsensusGraphConfig
from ..data import smooth_signals
from ..problem import Matrix, Vector, adjacency, edge_vector

STUDY = ConsensusGraphConfig.study

# The paper does not say which three of the twelve networks: the three with the most edges.
STUDENT_NETWORKS = (1, 2, 4)
# Nor which four of the twenty objects: the first four.
COIL_OBJECTS = (0, 1, 2, 3)
# Nor which 34 of the 90 regions: the first 34 of the atlas.
BRAIN_REGIONS = 34


def student_networks() -> NDArray[np.float64]:
    """Return the undirected networks (3, p) of 32 students."""
    folder = dataset("students")
    vectors = []
    for number in STUDENT_NETWORKS:
        arcs = np.loadtxt(folder / f"as{number}.net.txt").astype(int)
        matrix = np.zeros((32, 32))
        matrix[arcs[:, 0] - 1, arcs[:, 1] - 1] = 1.0
        vectors.append(edge_vector(np.maximum(matrix, matrix.T)))
    return np.array(vectors)


def figure_7(out: Path, console: Console) -> None:
    """Write MCC and RE on three student networks over the number of signals (33)."""
    truth = student_networks()
    base = {"beta": 0.02, "rho": 1.0, "lambda": 0.1}
    methods: dict[str, dict[str, Any]] = {
        "IGL": {"method": "igl"},
        "FedAvg": {"method": "fedavg"},
        "FedGL local": {},
        "FedGL, sound, epsilon 5": {"privacy": "sound", "epsilon": 5.0},
        "FedGL, sound, epsilon 20": {"privacy": "sound", "epsilon": 20.0},
    }
    rows = []
    for count in (100, 200, 300, 400):
        row = {"signals": float(count)}
        for name, changes in methods.items():
            scores = []
            for seed in range(1, 6):
                tables = {
                    f"network-{n}": smooth_signals(
                        adjacency(w), count, generator(seed, "students", n, count)
                    )
                    for n, w in zip(STUDENT_NETWORKS, truth, strict=True)
                }
                weights = run_on(STUDY, tables, {**base, **changes}, seed=seed).arrays["weights"]
                pairs = list(zip(weights, truth, strict=True))
                scores.append(
                    [
                        np.mean([matthews(w, t) for w, t in pairs]),
                        np.mean([relative_error(w, t) for w, t in pairs]),
                    ]
                )
            mcc, error = np.mean(scores, axis=0)
            row |= {f"mcc {name}": float(mcc), f"re {name}": float(error)}
        rows.append(row)
    write_atomically(out / "fig7.csv", metrics_csv(rows).encode())
    for metric in ("mcc", "re"):
        lines = {name: [row[f"{metric} {name}"] for row in rows] for name in methods}
        sizes = [row["signals"] for row in rows]
        plot = curves(sizes, lines, x_label="signals", y_label=metric.upper())
        save(plot, out / f"fig7-{metric}.png")
    console.print(f"wrote {out / 'fig7.csv'}", soft_wrap=True)


def coil_views() -> tuple[dict[str, Matrix], NDArray[np.int64]]:
    """Return three photographers' tables (1024, 48), pixels as signals, and the objects (48,)."""
    with np.load(dataset("COIL20") / "coil20.npz") as file:
        images, labels = file["images"].reshape(1440, -1) / 255.0, file["labels"]
    tables = {}
    for view in range(3):
        rows = [np.flatnonzero(labels == o)[12 * view : 12 * (view + 1)] for o in COIL_OBJECTS]
        # A pixel that is black in all 48 images tells nothing and is no signal.
        pixels = images[np.concatenate(rows)].T
        tables[f"view-{view + 1}"] = pixels[np.ptp(pixels, axis=1) > 0]
    return tables, np.repeat(np.arange(4), 12)


def communities(weights: Vector, threshold: float = 0.0) -> NDArray[np.int64]:
    """Return the community (d,) of every node, by Louvain's method."""
    import networkx

    matrix = adjacency(np.where(edges(weights, threshold), weights, 0.0))
    found = networkx.community.louvain_communities(networkx.from_numpy_array(matrix), seed=1)
    label = np.zeros(matrix.shape[0], dtype=np.int64)
    for number, members in enumerate(found):
        label[list(members)] = number
    return label


def table_2(out: Path, console: Console) -> None:
    """Write how well Louvain's method finds the four objects in the graphs of COIL-20 images."""
    from sklearn.metrics import (
        fowlkes_mallows_score,
        normalized_mutual_info_score,
        rand_score,
    )

    tables, objects = coil_views()
    base = {"beta": 0.1, "rho": 3.0, "lambda": 0.4, "rounds": 100, "clip": 20.0}
    graphs: dict[str, Vector] = {}
    alone = run_on(STUDY, tables, {**base, "method": "igl"}).arrays["weights"]
    graphs |= {f"IGL {i + 1}": w for i, w in enumerate(alone)}
    graphs["FedAvg"] = run_on(STUDY, tables, {**base, "method": "fedavg"}).arrays["consensus"]
    graphs["FedGL"] = run_on(STUDY, tables, base).arrays["consensus"]
    for epsilon in (1.0, 5.0):
        noisy = run_on(STUDY, tables, {**base, "privacy": "sound", "epsilon": epsilon})
        graphs[f"FedGL sound {epsilon:g}"] = noisy.arrays["consensus"]
    scores = {
        "NMI": normalized_mutual_info_score,
        "RI": rand_score,
        "FMI": fowlkes_mallows_score,
    }
    table = Table(title="Table II: communities in the graphs of COIL-20 images")
    for column in ("", *graphs):
        table.add_column(column)
    rows = []
    for name, score in scores.items():
        values = {g: float(score(objects, communities(w))) for g, w in graphs.items()}
        rows.append(values)
        table.add_row(name, *(f"{v:.3f}" for v in values.values()))
    text = metrics_csv(rows).splitlines()
    lines = [f"score,{text[0]}", *(f"{n},{t}" for n, t in zip(scores, text[1:], strict=True))]
    write_atomically(out / "table2.csv", ("\n".join(lines) + "\n").encode())
    console.print(table)


def figure_9(out: Path, console: Console) -> None:
    """Write brain graphs of one person with autism and one control, and what they share."""
    with np.load(dataset("ABIDE") / "abide_aal116.npz") as file:
        offsets, series = file["offsets"], file["ts"].astype(np.float64)
        diagnosis, regions = file["dx"], [str(r) for r in file["roi"][:BRAIN_REGIONS]]
    tables = {}
    for name, value in (("autism", 1), ("control", 0)):
        subject = int(np.flatnonzero(diagnosis == value)[1])
        part = series[offsets[subject] : offsets[subject + 1], :BRAIN_REGIONS]
        tables[name] = (part - part.mean(axis=0)) / part.std(axis=0)
    settings = {"beta": 0.2, "rho": 1.0, "lambda": 0.1}
    result = run_on(STUDY, tables, settings, columns=regions, out=out / "fig9")
    shared = edges(result.arrays["consensus"])
    for client, weights in zip(("autism", "control"), result.arrays["weights"], strict=True):
        save(two_colour_graph(weights, regions, shared, title=client), out / f"fig9-{client}.png")
    console.print(f"wrote {out / 'fig9'}", soft_wrap=True)
