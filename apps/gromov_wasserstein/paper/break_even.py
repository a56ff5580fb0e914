"""How many clients until private training together beats learning alone, and untrained weights.

Synthetic graphs of three classes (`synthetic`), ten a client: 7 to train with, 2 to choose by. Told
is the accuracy on graphs that nobody has, mean over seeds, of the model of labels of graphs:

    alone     a client by itself, from raw graphs, no privacy needed: what untrained weights and a
              client's own graphs give
    shared    the weights that noisy sums have trained; half of epsilon, the bits have the rest
    kept      what a device keeps (`model.home`): shared, tuned on its own graphs, or alone
    none      the same steps without noise

and, with the most clients, from what is released: an SVM on GW between 60 encoded embeddings, with
the shared weights on the other half of epsilon, with untrained weights on all of it, and from the
numbers of nodes alone.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apps.common.seeds import generator
from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.plots import curves

from ..data import split
from ..distances import distances
from ..downstream.classify import svm_accuracy
from ..graphs import Graph, labels_of
from ..model.gnn import build_model, load, nn, weights
from ..model.home import ALONE, DECAY, USUAL_RATE, at_home
from ..model.training import embed, evaluate, local_training
from ..release import simulated_release
from ..simulate import noisy_weights
from ..synthetic import CLASSES, synthetic_graphs
from .private import FOLDS, TRAINING, noisy
from .scores import QUICK, Array, Budget

CLIENTS = (10, 30, 100, 300)
EPSILONS = (0.3, 1.0, 3.0)
SEEDS = 10
EACH = 10  # graphs of a client
UNSEEN, COMPARED = 300, 60
ASKED = 2  # clients whose own models are looked at
COLUMNS = ("alone", "shared", "kept", "bits, shared", "bits, untrained", "sizes")


def break_even(out: Path, console: Console, *, seeds: int = SEEDS) -> None:
    """Write accuracy over the number of clients, and where the curves cross."""
    epsilons = (*EPSILONS, math.inf)
    keys = [(clients, epsilon) for epsilon in epsilons for clients in CLIENTS]
    jobs = [(*key, seed) for key in keys for seed in range(1, seeds + 1)]
    found = on_all_cores(break_even_job, jobs, console, "break-even")
    values = np.array(found).reshape(len(epsilons), len(CLIENTS), seeds, len(COLUMNS))
    means = values.mean(axis=2)
    rows: list[dict[str, Any]] = [
        {"epsilon": epsilon if math.isfinite(epsilon) else "none", "clients": clients}
        | dict(zip(COLUMNS, line.tolist(), strict=True))
        for epsilon, table in zip(epsilons, means, strict=True)
        for clients, line in zip(CLIENTS, table, strict=True)
    ]
    lines = {
        f"{name}, {_named(epsilon)}": table[:, column].tolist()
        for epsilon, table in zip(epsilons, means, strict=True)
        for name, column in (("shared", 1), ("kept", 2))
        if np.isfinite(table[:, column]).all()
    }
    lines["alone"] = means[:, :, 0].mean(axis=0).tolist()
    plot = curves(
        CLIENTS, lines, x_label=f"clients, {EACH} graphs each", y_label="accuracy, unseen graphs",
        title=f"synthetic graphs, {seeds} seeds", log_x=True,
    )  # fmt: skip
    save_plot(plot, out / "break-even")
    show_rows(rows, f"Accuracy on graphs that nobody has, {seeds} seeds", console)
    for line in crossings(epsilons, means):
        console.print(line)
    write_rows(out / "break-even.csv", rows, console)


def crossings(epsilons: tuple[float, ...], means: Array) -> list[str]:
    """Return, in words, from how many clients on one column beats another.

    ``means`` : (epsilons, clients, columns)
    """
    told = []
    pairs = (("shared", "alone"), ("kept", "alone"), ("bits, shared", "bits, untrained"))
    for epsilon, table in zip(epsilons, means, strict=True):
        for ours, other in pairs:
            lead = table[:, COLUMNS.index(ours)] - table[:, COLUMNS.index(other)]
            if math.isnan(lead[-1]):
                continue
            ahead = lead > 0.0
            # From there on, not here and there.
            first = len(ahead) - int(np.argmin(ahead[::-1])) if not ahead.all() else 0
            never = f"never up to {CLIENTS[-1]}"
            where = f"from {CLIENTS[first]}" if first < len(CLIENTS) else never
            told.append(f"{_named(epsilon)}: {ours} beats {other} {where} clients")
    return told


def break_even_job(job: tuple[int, float, int]) -> list[float]:
    """Return the `COLUMNS` of one number of clients, one epsilon and one seed."""
    clients, epsilon, seed = job
    graphs = synthetic_graphs(clients * EACH + UNSEEN, generator(seed, "graphs"))
    unseen, dealt = graphs[:UNSEEN], graphs[UNSEEN:]
    owned = [dealt[k::clients] for k in range(clients)]
    parts = [split(EACH, generator(seed, "split", k)) for k in range(clients)]
    first = _model(seed, 0)
    start = weights(first)
    lost, bad = clients // 10, clients // 10
    how = noisy(TRAINING * epsilon, clients, max(1, clients - lost - bad))
    train = [own[p] for own, part in zip(owned, parts, strict=True) for p in part.train]
    shared = noisy_weights(first, train, start, "graph", how, seed)
    alone, kept = [], []
    for k in range(min(ASKED, clients)):
        model = _model(seed, k + 1)
        fresh = weights(model)
        if math.isfinite(epsilon):
            home = at_home(model, owned[k], parts[k], shared, fresh, "graph", draw=seed)
            kept.append(accuracy(model, home.weights, unseen))
        own = [owned[k][p] for p in np.concatenate([parts[k].train, parts[k].validation])]
        learnt = local_training(model, own, fresh, "graph", ALONE, 0, USUAL_RATE, DECAY, 0.0, seed)
        alone.append(accuracy(model, learnt.weights, unseen))
    told = [float(np.mean(alone)), accuracy(first, shared, unseen)]
    told.append(float(np.mean(kept)) if kept else math.nan)
    compared = unseen[:COMPARED]
    if not math.isfinite(epsilon) or clients < CLIENTS[-1]:
        return [*told, *[math.nan] * 3]
    n = np.array([float(graph.nodes) for graph in compared])
    told.append(bits(first, shared, compared, (1.0 - TRAINING) * epsilon, seed))
    told.append(bits(first, start, compared, epsilon, seed))
    told.append(_svm(np.abs(n[:, None] - n[None, :]), compared, seed))
    return told


def accuracy(model: nn.Module, vector: Array, graphs: list[Graph]) -> float:
    """Return the share of graphs whose class the model tells."""
    load(model, vector)
    return evaluate(model, graphs, "graph", {"all": np.ones(len(graphs), bool)})["all"].accuracy


def bits(model: nn.Module, vector: Array, graphs: list[Graph], epsilon: float, seed: int) -> float:
    """Return the accuracy from GW between the encoded embeddings, epsilon a graph."""
    load(model, vector)
    config = Budget("", epsilon, "graph").config()
    rows = simulated_release(config, embed(model, graphs), 0, seed)
    return _svm(distances(config, *rows, workers=1), graphs, seed)


def _svm(d: Array, graphs: list[Graph], seed: int) -> float:
    scaled = d / (d.mean() or 1.0)
    return svm_accuracy(scaled, labels_of(graphs), seed=seed, folds=FOLDS, grid=QUICK).mean


def _model(seed: int, number: int) -> nn.Module:
    drawn = int(generator(seed, "model", number).integers(2**62))
    return build_model("gcn", CLASSES, CLASSES, "graph", 16, seed=drawn)


def _named(epsilon: float) -> str:
    return f"epsilon {epsilon:g}" if math.isfinite(epsilon) else "no noise"
