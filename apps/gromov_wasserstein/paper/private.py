"""What is left under sound privacy: nothing trained, or trained with noise in the sums.

``private``: accuracy of an SVM on GW between encoded embeddings, graphs of MUTAG, beside controls.

    untrained   weights from the seed, the whole budget is for the bits
    trained     FedAvg with noise in the sums on half of the budget, bits on the other half
    constant    the same encoder on an embedding that knows nothing
    none        the same without privacy: untrained; trained by FedAvg

Every graph is embedded by a model that has not seen its label: two halves, each by the model of the
other, and whatever is learned is cross-validated inside a half, for all rows alike. A seed deals
the halves, draws weights, noise and bits.

What a device can do at home costs no bits at all; how many clients that takes is `break_even`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apps.common.seeds import generator
from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.plots import curves, level
from strategies.gromov_wasserstein.descent import Descent

from ..config import GromovWassersteinConfig
from ..distances import distances
from ..downstream.classify import stratified_folds, svm_accuracy
from ..downstream.controls import majority
from ..graphs import Graph, labels_of
from ..model.gnn import build_model, load, nn, weights
from ..model.training import embed
from ..release import simulated_release
from ..simulate import Noisy, noisy_weights
from .model import collection, federated_model
from .scores import NONE, QUICK, Array, Budget, Embedded, against

EPSILONS = (0.3, 1.0, 3.0, 10.0)
SEEDS = 10
GRAPHS = 120  # of MUTAG; both halves have 60
CLIENTS, NOISERS = 10, 8  # one may drop out, one may tell
FOLDS = 5
DELTA, ROUNDS, BOUND, RATE, DECAY = 1e-5, 20, 1.0, 0.3, 0.0005
TRAINING = 0.5  # of epsilon


@dataclass(frozen=True)
class Case:
    """A line of the table: what embeds, with which budget; ``epsilon`` 0 is no privacy."""

    way: str
    model: str
    epsilon: float = 0.0
    per: str = "graph"

    @property
    def budget(self) -> Budget:
        """What is left for the bits."""
        if not self.epsilon:
            return NONE
        share = 1.0 - TRAINING if self.way == "trained" else 1.0
        return Budget(f"{self.epsilon:g} a {self.per}", share * self.epsilon, self.per)


def private(out: Path, console: Console, *, seeds: int = SEEDS, graphs: int = GRAPHS) -> None:
    """Write the table of accuracies under sound privacy, with the controls, and its curves."""
    data = collection("MUTAG", graphs)
    cases = private_cases()
    jobs = [(case, graphs, seed) for case in cases for seed in range(1, seeds + 1)]
    found = np.array(on_all_cores(private_job, jobs, console, "private"))
    by_case = dict(zip(cases, found.reshape(len(cases), seeds), strict=True))
    controls = {name: by_case.pop(Case(name, "gcn")) for name in ("majority", "sizes")}
    rows = [_line(case, values, by_case) for case, values in by_case.items()]
    rows += [
        {"way": name, "budget": "", "accuracy": float(v.mean()), "error": _error(v)}
        | {"less constant": ""}
        for name, v in controls.items()
    ]
    for per in ("graph", "node"):
        lines = {
            f"{way}, {model}": [float(by_case[Case(way, model, e, per)].mean()) for e in EPSILONS]
            for way, model in WAYS
        }
        plot = curves(
            EPSILONS, lines, x_label=f"epsilon of a {per}", y_label="accuracy",
            title=f"MUTAG, {graphs} graphs, {seeds} seeds", log_x=True,
        )  # fmt: skip
        for name, values in controls.items():
            plot = level(plot, float(values.mean()), name)
        save_plot(plot, out / f"private-{per}")
    title = f"{len(data)} graphs of MUTAG in two halves, {seeds} seeds, SVM on GW"
    show_rows(rows, title, console)
    console.print(
        "error is the standard error over seeds. 'less constant' is paired: same halves, same "
        "uniforms of the encoder."
    )
    write_rows(out / "private.csv", rows, console)


WAYS = (("untrained", "gcn"), ("untrained", "gin"), ("trained", "gcn"), ("constant", "gcn"))


def private_cases() -> list[Case]:
    """Return the lines of the table."""
    cases = [Case("majority", "gcn"), Case("sizes", "gcn")]
    cases += [Case("untrained", "gcn"), Case("untrained", "gin"), Case("trained", "gcn")]
    for per in ("graph", "node"):
        cases += [Case(way, model, e, per) for e in EPSILONS for way, model in WAYS]
    return cases


def private_job(job: tuple[Case, int, int]) -> float:
    """Return the accuracy of one line with one seed."""
    case, most, seed = job
    graphs = collection("MUTAG", most)
    labels = labels_of(graphs)
    if case.way == "majority":
        return majority(labels)
    halves = stratified_folds(labels, 2, generator(seed, "halves"))
    found = []
    for own, other in (halves, halves[::-1]):
        mine = [graphs[place] for place in own]
        if case.way == "sizes":
            n = np.array([float(graph.nodes) for graph in mine])
            d = np.abs(n[:, None] - n[None, :])
        else:
            model = _model(case, graphs, [graphs[place] for place in other], seed)
            part = Embedded(own, embed(model, mine), labels[own])
            config = case.budget.config()
            chosen = part.constant() if case.way == "constant" else part
            d = distances(config, *simulated_release(config, chosen.rows, 0, seed), workers=1)
        scaled = d / (d.mean() or 1.0)
        found.append(svm_accuracy(scaled, labels[own], seed=seed, folds=FOLDS, grid=QUICK).mean)
    return float(np.mean(found))


def _model(case: Case, graphs: list[Graph], other: list[Graph], seed: int) -> nn.Module:
    """Return the model that embeds a half: it has seen the labels of ``other`` at most."""
    classes = int(labels_of(graphs).max()) + 1
    if case.way == "trained" and not case.epsilon:
        config = GromovWassersteinConfig.from_settings({"task": "graph"})
        return federated_model(config, other, classes, seed)
    drawn = int(generator(seed, "model").integers(2**62))
    width = graphs[0].features.shape[1]
    model = build_model(case.model, width, classes, "graph", 16, seed=drawn)
    if case.way == "trained":
        how = noisy(TRAINING * case.epsilon)
        load(model, noisy_weights(model, other, weights(model), "graph", how, seed))
    return model


def noisy(epsilon: float, clients: int = CLIENTS, noisers: int = NOISERS) -> Noisy:
    """Return training with the study's settings at this epsilon."""
    return Noisy(epsilon, DELTA, ROUNDS, BOUND, Descent(RATE, DECAY), clients, noisers)


def _line(case: Case, values: Array, found: dict[Case, Array]) -> dict[str, Any]:
    row: dict[str, Any] = {"way": f"{case.way}, {case.model}"}
    row["budget"] = f"{case.epsilon:g} a {case.per}" if case.epsilon else "none"
    row |= {"accuracy": float(values.mean()), "error": _error(values)}
    row["less constant"] = ""
    control = found.get(Case("constant", "gcn", case.epsilon, case.per))
    if control is not None and case.way != "constant" and len(values) > 1:
        gain, error = against(values, control)
        row["less constant"] = f"{100 * gain:+.1f} ± {100 * error:.1f}"
    return row


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
