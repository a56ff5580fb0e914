"""What is left under differential privacy: nothing trained, or trained with noise in the sums.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.pages.plots import curves, level
from trellis.strategies.gromov_wasserstein.descent import Descent

from ..distances import distances
from ..downstream.classify import stratified_folds, svm_accuracy
from ..downstream.controls import majority
from ..graphs import Graph, labels_of
from ..model.gnn import build_model, load, nn, weights
from ..model.training import embed
from ..release import simulated_release
from ..simulate import Noisy, noisy_weights
from .model import collection, federated_model, model_config
from .scores import (
    NONE,
    SVM_GRIDS,
    Array,
    Budget,
    Embedded,
    against,
    banded,
    clearly,
    standard_error,
)

CLIENTS, NOISERS = 10, 8  # one may drop out, one may tell
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


def private(making: Making) -> list[Finding]:
    """Write the table of accuracies under differential privacy, with the controls, and its curves."""
    epsilons, seeds, graphs = tuple(making["epsilons"]), making["seeds"], making["graphs"]
    data = collection("MUTAG", graphs)
    cases = private_cases(epsilons)
    jobs = [
        PrivateJob(case, graphs, seed, making["folds"], making["rounds"], making["grid"])
        for case in cases
        for seed in making.seeds
    ]
    found = np.array(making.on_all_cores(private_job, jobs, "private"))
    by_case = dict(zip(cases, found.reshape(len(cases), seeds), strict=True))
    controls = {name: by_case.pop(Case(name, "gcn")) for name in ("majority", "sizes")}
    rows = [_line(case, values, by_case) for case, values in by_case.items()]
    for name, values in controls.items():
        rows.append(_line(Case(name, ""), values, {}))
    for per in ("graph", "node"):
        lines, bands = {}, {}
        for way, model in WAYS:
            each = np.array([by_case[Case(way, model, e, per)] for e in epsilons])
            lines[f"{way}, {model}"], bands[f"{way}, {model}"] = banded(each)
        plot = curves(
            epsilons, lines, bands=bands, x_label=f"epsilon of a {per} (small is private)",
            y_label="accuracy", title=f"MUTAG, {graphs} graphs, {seeds} seeds", log_x=True,
        )  # fmt: skip
        for name, values in controls.items():
            plot = level(plot, float(values.mean()), name)
        making.plot(plot, per)
    making.table(rows, show=f"{len(data)} graphs of MUTAG in two halves, {seeds} seeds, SVM on GW")
    making.console.print(
        "error is the standard error over seeds. 'less constant' is paired: same halves, same "
        "uniforms of the encoder."
    )
    return [_verdict(by_case, controls["sizes"], seeds)]


def _verdict(by_case: dict[Case, Array], sizes: Array, seeds: int) -> Finding:
    """Return our own headline: do bits tell more than a constant embedding does."""
    leads = []
    for case, values in by_case.items():
        control = by_case.get(Case("constant", "gcn", case.epsilon, case.per))
        if control is not None and case.way != "constant" and case.epsilon:
            leads.append(against(values, control))
    ahead = sum(clearly(gain, 1.5 * error) for gain, error in leads)  # three errors, of so many
    gain, error = max(leads)
    best = max(float(v.mean()) for case, v in by_case.items() if case.epsilon)
    text = (
        f"{ahead} of {len(leads)} budgets and models lead a constant embedding by three standard "
        f"errors, the largest lead {100 * gain:+.1f} ± {100 * np.nan_to_num(error):.1f} points; "
        f"best {100 * best:.1f} %, numbers of nodes alone {100 * sizes.mean():.1f} %"
    )
    good = ahead == 0
    why = f"at {ahead} of {len(leads)} the bits do tell something"
    return Finding("private", text, "reproduced" if good else "partly", "" if good else why, seeds)


WAYS = (("untrained", "gcn"), ("untrained", "gin"), ("trained", "gcn"), ("constant", "gcn"))


def private_cases(epsilons: Sequence[float]) -> list[Case]:
    """Return the lines of the table."""
    cases = [Case("majority", "gcn"), Case("sizes", "gcn")]
    cases += [Case("untrained", "gcn"), Case("untrained", "gin"), Case("trained", "gcn")]
    for per in ("graph", "node"):
        cases += [Case(way, model, e, per) for e in epsilons for way, model in WAYS]
    return cases


@dataclass(frozen=True)
class PrivateJob:
    """One line of the table with one seed; ``rounds`` of training."""

    case: Case
    most: int
    seed: int
    folds: int = 5
    rounds: int = ROUNDS
    grid: str = "quick"


def private_job(job: PrivateJob) -> float:
    """Return the accuracy of one line with one seed."""
    case, seed = job.case, job.seed
    graphs = collection("MUTAG", job.most)
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
            model = _model(job, graphs, [graphs[place] for place in other])
            part = Embedded(own, embed(model, mine), labels[own])
            config = case.budget.config()
            chosen = part.constant() if case.way == "constant" else part
            d = distances(config, *simulated_release(config, chosen.rows, 0, seed), workers=1)
        scaled = d / (d.mean() or 1.0)
        found.append(
            svm_accuracy(
                scaled, labels[own], seed=seed, folds=job.folds, grid=SVM_GRIDS[job.grid]
            ).mean
        )
    return float(np.mean(found))


def _model(job: PrivateJob, graphs: list[Graph], other: list[Graph]) -> nn.Module:
    """Return the model that embeds a half: it has seen the labels of ``other`` at most."""
    case, seed = job.case, job.seed
    classes = int(labels_of(graphs).max()) + 1
    if case.way == "trained" and not case.epsilon:
        config = model_config("GCN", "graph", job.rounds)
        return federated_model(config, other, classes, seed)
    drawn = int(generator(seed, "model").integers(2**62))
    width = graphs[0].features.shape[1]
    model = build_model(case.model, width, classes, "graph", 16, seed=drawn)
    if case.way == "trained":
        how = noisy(TRAINING * case.epsilon, rounds=job.rounds)
        load(model, noisy_weights(model, other, weights(model), "graph", how, seed))
    return model


def noisy(
    epsilon: float, clients: int = CLIENTS, noisers: int = NOISERS, rounds: int = ROUNDS
) -> Noisy:
    """Return training with the study's settings at this epsilon."""
    return Noisy(epsilon, DELTA, rounds, BOUND, Descent(RATE, DECAY), clients, noisers)


def _line(case: Case, values: Array, found: dict[Case, Array]) -> dict[str, Any]:
    row: dict[str, Any] = {"way": f"{case.way}, {case.model}".rstrip(", ")}
    row["budget"] = f"{case.epsilon:g} a {case.per}" if case.epsilon else "none"
    row |= {"accuracy": float(values.mean()), "error": float(standard_error(values))}
    row |= {"less constant": "", "its error": ""}
    control = found.get(Case("constant", "gcn", case.epsilon, case.per))
    if control is not None and case.way != "constant" and len(values) > 1:
        row["less constant"], row["its error"] = against(values, control)
    return row
