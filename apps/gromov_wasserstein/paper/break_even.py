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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding, spread
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves

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
from .private import TRAINING, noisy
from .scores import QUICK, Array, Budget, banded, clearly, standard_error

EACH = 10  # graphs of a client
COLUMNS = ("alone", "shared", "kept", "bits, shared", "bits, untrained", "sizes")


@dataclass(frozen=True)
class BreakEvenJob:
    """One number of clients, one epsilon, one seed; ``last``: bits are looked at, too."""

    clients: int
    epsilon: float
    seed: int
    unseen: int = 300
    last: bool = False
    asked: int = 2  # clients whose own models are looked at
    compared: int = 60  # of the unseen graphs, by their bits


def break_even(making: Making) -> list[Finding]:
    """Write accuracy over the number of clients, and where the curves cross."""
    epsilons, clients = (*making["epsilons"], math.inf), tuple(making["clients"])
    seeds = making["seeds"]
    sizes = (making["asked"], making["compared"])
    jobs = [
        BreakEvenJob(count, epsilon, seed, making["unseen"], count == clients[-1], *sizes)
        for epsilon in epsilons
        for count in clients
        for seed in making.seeds
    ]
    found = making.on_all_cores(break_even_job, jobs, "break-even")
    values = np.array(found).reshape(len(epsilons), len(clients), seeds, len(COLUMNS))
    means, errors = values.mean(axis=2), standard_error(values, axis=2)
    rows: list[dict[str, Any]] = [
        {"epsilon": epsilon, "clients": count}
        | dict(zip(COLUMNS, line.tolist(), strict=True))
        | {f"{name}, error": float(e) for name, e in zip(COLUMNS[:3], error, strict=False)}
        for epsilon, table, spreads in zip(epsilons, means, errors, strict=True)
        for count, line, error in zip(clients, table, spreads, strict=True)
    ]
    lines, bands = {}, {}
    for epsilon, table in zip(epsilons, values, strict=True):
        for name, column in (("shared", 1), ("kept", 2)):
            if np.isfinite(table[..., column]).all():
                title = f"{name}, {_named(epsilon)}"
                lines[title], bands[title] = banded(table[..., column])
    alone = values[..., 0].transpose(1, 0, 2).reshape(len(clients), -1)
    lines["alone"], bands["alone"] = banded(alone)
    plot = curves(
        clients, lines, bands=bands, x_label=f"clients, {EACH} graphs each", log_x=True,
        y_label="accuracy on unseen graphs", title=f"synthetic graphs, {seeds} seeds",
    )  # fmt: skip
    making.plot(plot)
    making.table(rows, show=f"Accuracy on graphs that nobody has, {seeds} seeds; inf: no noise")
    told = crossings(epsilons, clients, means)
    for line in told:
        making.console.print(line)
    return [_verdict(values[: len(epsilons) - 1], epsilons, clients, told, seeds)]


def _verdict(
    values: Array,
    epsilons: Sequence[float],
    clients: Sequence[int],
    told: Sequence[str],
    seeds: int,
) -> Finding:
    """Return our own headline, of the most clients; ``values`` (epsilons, clients, seeds, .)."""
    leads = values[:, -1, :, 1] - values[:, -1, :, 0]
    ahead = [clearly(float(one.mean()), float(standard_error(one))) for one in leads]
    each = ", ".join(
        f"{spread(one, 2)} at epsilon {e:g}" for e, one in zip(epsilons, leads, strict=False)
    )
    text = f"{clients[-1]} clients, shared less alone: {each}; " + "; ".join(
        line for line in told if "shared beats alone" in line
    )
    if all(ahead):
        return Finding("break-even", text, "reproduced", "", seeds)
    mostly = float(leads.mean()) > 0.0
    why = f"ahead by two standard errors at {sum(ahead)} of {len(ahead)} epsilons"
    return Finding("break-even", text, "partly" if mostly else "refuted", why, seeds)


def crossings(epsilons: Sequence[float], clients: Sequence[int], means: Array) -> list[str]:
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
            never = f"never up to {clients[-1]}"
            where = f"from {clients[first]}" if first < len(clients) else never
            told.append(f"{_named(epsilon)}: {ours} beats {other} {where} clients")
    return told


def break_even_job(job: BreakEvenJob) -> list[float]:
    """Return the `COLUMNS` of one number of clients, one epsilon and one seed."""
    clients, epsilon, seed = job.clients, job.epsilon, job.seed
    graphs = synthetic_graphs(clients * EACH + job.unseen, generator(seed, "graphs"))
    unseen, dealt = graphs[: job.unseen], graphs[job.unseen :]
    owned = [dealt[k::clients] for k in range(clients)]
    parts = [split(EACH, generator(seed, "split", k)) for k in range(clients)]
    first = _model(seed, 0)
    start = weights(first)
    lost, bad = clients // 10, clients // 10
    how = noisy(TRAINING * epsilon, clients, max(1, clients - lost - bad))
    train = [own[p] for own, part in zip(owned, parts, strict=True) for p in part.train]
    shared = noisy_weights(first, train, start, "graph", how, seed)
    alone, kept = [], []
    for k in range(min(job.asked, clients)):
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
    compared = unseen[: job.compared]
    if not (math.isfinite(epsilon) and job.last):
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
    return svm_accuracy(scaled, labels_of(graphs), seed=seed, folds=5, grid=QUICK).mean


def _model(seed: int, number: int) -> nn.Module:
    drawn = int(generator(seed, "model", number).integers(2**62))
    return build_model("gcn", CLASSES, CLASSES, "graph", 16, seed=drawn)


def _named(epsilon: float) -> str:
    return f"epsilon {epsilon:g}" if math.isfinite(epsilon) else "no noise"
