"""Table 1 of the paper: accuracy on graph classification, beside controls.

What is new beside [JC]'s rows: the three controls of `controls`, a GNN with random weights (what
training adds), the plain Wasserstein distance on H, and H* at a budget that protects nobody, to
see where it starts to carry something. Who may see which labels: see `model`.

A seed deals graphs to clients and halves, draws weights, bits and folds. Told are means over seeds
and their standard errors; of H* and of the constant embedding every seed is the mean over draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making

from ..config import GromovWassersteinConfig
from ..downstream.baselines import fused_inputs, shortest_path_kernel, topology_matrices
from ..downstream.classify import Accuracy, kernel_svm_accuracy
from ..downstream.controls import majority
from ..graphs import Graph, labels_of
from .model import (
    MODELS,
    CentralJob,
    central_job,
    collection,
    embed_job,
    has_node_labels,
    model_config,
)
from .scores import (
    NONE,
    Array,
    Embedded,
    Integers,
    RawJob,
    ScoreJob,
    accuracy,
    named_budget,
    raw_job,
    score_job,
)
from .table_plot import dots
from .table_verdicts import RAW, Line, verdicts

SPK_COSTS = tuple(10.0**k for k in range(-3, 4))  # more, up to 1e7, only let the solver run on

Embeddings = dict[tuple[str, str, int], tuple[Embedded, ...]]  # of a data set, a model, a seed
Lines = dict[tuple[str, str], Line]


def table_1(making: Making) -> list[Finding]:
    """Write Table 1 with our numbers, the paper's and the controls."""
    sample, way = dict(making["graphs"]), f"svm-{making['grid']}"
    sets = {data: collection(data, most) for data, most in sample.items()}
    seeds = tuple(making.seeds)
    models = {
        (data, title, seed): (data, sample[data], config, trained, seed)
        for data, graphs in sets.items()
        for title, config, trained in model_settings(graphs, making["rounds"])
        for seed in seeds
    }
    found = making.on_all_cores(embed_job, list(models.values()), "table 1, training")
    embeddings = dict(zip(models, found, strict=True))
    central = {
        (data, model, seed): CentralJob(
            data, sample[data], model_config(model, "graph", 1), seed,
            making["central-folds"], making["central-epochs"],
        )
        for data in sets
        for model in MODELS
        for seed in seeds
    }  # fmt: skip
    done = making.on_all_cores(central_job, list(central.values()), "table 1, in one place")
    in_one_place = dict(zip(central, done, strict=True))
    raw = making.on_all_cores(
        raw_job, [_raw(graphs, way, seeds) for graphs in sets.values()], "table 1, raw graphs"
    )
    lines: Lines = {}
    for (data, graphs), by_seed in zip(sets.items(), raw, strict=True):
        halves = [embeddings[data, "GIN", seed] for seed in seeds]
        lines |= _controls(data, graphs, halves, way, seeds)
        for model in MODELS:
            lines[data, model] = _line([in_one_place[data, model, seed] for seed in seeds])
        lines[data, RAW] = _line(by_seed)
    lines |= _unencoded(making, embeddings, way) | _encoded(making, embeddings, way)
    cells = [line.cells(*key) for data in sets for key, line in lines.items() if key[0] == data]
    counts = ", ".join(f"{len(graphs)} graphs of {data}" for data, graphs in sets.items())
    making.table(cells, show=f"Accuracy in per cent, {len(seeds)} seeds: {counts}")
    making.console.print(
        "Errors are standard errors over seeds. 'H* less constant' is paired: same draws of the "
        "encoder. Models of labels of graphs embed graphs whose labels they have not seen; SVMs on "
        "them, and 'number of nodes, halves', learn inside halves."
    )
    making.plot(dots(lines, list(sets)))
    return verdicts(lines, {data: len(graphs) for data, graphs in sets.items()}, len(seeds))


def sample(making: Making) -> list[Finding]:
    """Write the same table of some graphs; verdicts are for the paper's sizes."""
    table_1(making)
    return []


def model_settings(
    graphs: Sequence[Graph], rounds: int
) -> Iterator[tuple[str, GromovWassersteinConfig, bool]]:
    """Yield the models of a data set: name, settings, whether it is trained.

    GCN learns labels of nodes where there are any, as in [JC]; GIN those of graphs.
    """
    node = has_node_labels(graphs)
    yield "GCN", model_config("GCN", "node" if node else "graph", rounds), True
    if node:
        yield "GCN, graph labels", model_config("GCN", "graph", rounds), True
    yield "GIN", model_config("GIN", "graph", rounds), True
    yield "GIN, random weights", model_config("GIN", "graph", rounds), False


def _raw(graphs: Sequence[Graph], way: str, seeds: tuple[int, ...]) -> RawJob:
    """Return the job of the base metric: FGW_AX, or GW_A where nodes have no labels."""
    if not has_node_labels(graphs):
        return RawJob(topology_matrices(graphs), None, labels_of(graphs), way, seeds)
    given = fused_inputs(graphs)
    return RawJob(given.structures, given.features, labels_of(graphs), way, seeds)


def _controls(
    data: str,
    graphs: Sequence[Graph],
    halves: Sequence[tuple[Embedded, ...]],
    way: str,
    seeds: tuple[int, ...],
) -> Lines:
    """Return what knows nothing of an embedding, and the shortest-path kernel."""
    labels, sizes = labels_of(graphs), np.array([graph.nodes for graph in graphs])
    kernel = shortest_path_kernel(graphs, node_labels=has_node_labels(graphs))
    whole = [accuracy([_gaps(sizes)], [labels], way, seed) for seed in seeds]
    inside = [
        accuracy([_gaps(part.sizes) for part in parts], [p.labels for p in parts], way, seed)
        for parts, seed in zip(halves, seeds, strict=True)
    ]
    spk = [kernel_svm_accuracy(kernel, labels, seed=seed, costs=SPK_COSTS) for seed in seeds]
    return {
        (data, "majority"): Line(np.full(len(seeds), majority(labels))),
        (data, "number of nodes"): _line(whole),
        (data, "number of nodes, halves"): _line(inside),
        (data, "SPK"): _line(spk),
    }


def _unencoded(making: Making, embeddings: Embeddings, way: str) -> Lines:
    """Return the rows of H, by Gromov-Wasserstein and by plain Wasserstein."""
    keys = [
        (data, title, seed, metric)
        for (data, title, seed) in embeddings
        for metric in ("gw", "wasserstein")
    ]
    jobs = [
        ScoreJob(NONE.config(metric=metric), embeddings[data, title, seed], 0, (way,), seed)
        for data, title, seed, metric in keys
    ]
    found = making.on_all_cores(score_job, jobs, "table 1, H")
    rows: dict[tuple[str, str], list[Accuracy]] = {}
    for (data, title, _, metric), (score,) in zip(keys, found, strict=True):
        name = f"{'GW' if metric == 'gw' else 'W'}_H({title})"
        rows.setdefault((data, name), []).append(score)
    halves = {(data, title): len(parts) > 1 for (data, title, _), parts in embeddings.items()}
    return {
        (data, name): replace(_line(scores), halves=halves[data, name.partition("(")[2][:-1]])
        for (data, name), scores in rows.items()
    }


def _encoded(making: Making, embeddings: Embeddings, way: str) -> Lines:
    """Return the rows of H* and of the encoder on a constant embedding."""
    budgets, draws = [named_budget(told) for told in making["budgets"]], making["draws"]
    names = list(dict.fromkeys((data, title) for data, title, _ in embeddings if title in MODELS))
    keys = [(data, title, budget) for data, title in names for budget in budgets]
    jobs = []
    for data, title, budget in keys:
        for seed in making.seeds:
            parts = embeddings[data, title, seed]
            for given in (parts, tuple(part.constant() for part in parts)):
                jobs += [
                    ScoreJob(budget.config(), given, draw, (way,), seed) for draw in range(draws)
                ]
    found = [score.mean for (score,) in making.on_all_cores(score_job, jobs, "table 1, H*")]
    values = np.array(found).reshape(len(keys), len(making.seeds), 2, draws)
    lines = {}
    for (data, title, budget), each in zip(keys, values, strict=True):
        what = f"GW_H*({title}), {budget.name}"
        gains = (each[:, 0] - each[:, 1]).ravel()
        halves = len(embeddings[data, title, making.seeds[0]]) > 1
        lines[data, what] = Line(each[:, 0].mean(axis=1), gains=gains, halves=halves)
        lines[data, f"constant in place of H, {what}"] = Line(each[:, 1].mean(axis=1))
    return lines


def _line(scores: Sequence[Accuracy]) -> Line:
    deviation = float(np.mean([score.deviation for score in scores]))
    return Line(np.array([score.mean for score in scores]), deviation)


def _gaps(sizes: Integers) -> Array:
    n = sizes.astype(np.float64)
    return np.abs(n[:, None] - n[None, :])
