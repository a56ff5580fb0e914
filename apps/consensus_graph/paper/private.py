"""What privacy costs, and from how many clients on it pays: tables without messages.

The same functions that devices and server call (`apps.consensus_graph.private`), on a batch of
clients, with the noise of a whole sum in one draw. Graphs of 20 nodes that share half of their
edges; MCC counts an edge where its weight exceeds 0.2 of the graph's largest. Of large federations
an even sample of `WATCHED` clients is evaluated; all of them are in the sums. Rounds of fedgl
(``none`` and ``each``) are run on `ROUND_SEEDS`.

Nothing here was tuned on these seeds but what `pooled` and `personal` say was measured on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from apps.common.metrics import matthews
from apps.common.seeds import generator
from apps.experiments.sweep import on_all_cores, save_plot, show_rows, write_rows
from apps.pages.plots import curves
from privacy.mechanisms.gaussian import gaussian_sigma
from privacy.mechanisms.shares import plan_share, simulated_sum_noise
from privacy.secagg.graph import expected_noisers

from ..config import ConsensusGraphConfig
from ..data import Truth, synthetic_table, synthetic_truth
from ..private import pooled
from ..private.device import release_ratio
from ..private.forecast import forecast_of
from ..private.personal import personal_graph
from ..problem import Matrix, Vector, sensitivity, statistic
from .algorithm import Constants, exact_rounds

SEEDS = range(1, 11)
WATCHED = 25
# Rounds of fedgl over up to a thousand clients take long: on the first few seeds only.
ROUND_SEEDS = SEEDS[:3]
# Clients, signals, epsilon; 0 is no noise at all.
SETTINGS = (
    (200, 50, 1.0),
    (200, 50, 0.3),
    (1000, 20, 1.0),
    (1000, 20, 0.3),
    (20, 50, 3.0),
    (20, 50, 1.0),
    (20, 50, 0.3),
)
# Expected of consensus and device, to be reached within .02, where alone has .58 to .42.
EXPECTED = {
    (200, 50, 1.0): (0.96, 0.64),
    (200, 50, 0.3): (0.88, 0.66),
    (1000, 20, 1.0): (0.98, 0.64),
    (20, 50, 1.0): (0.47, 0.577),
}
EPSILONS = (0.3, 1.0, 3.0)
SIZES = (5, 10, 20, 50, 100, 200, 500, 1000)
BREAK_EVEN_SIGNALS = (20, 50)
_GAIN = 0.02  # in MCC, that counts as better than alone
# Rounds of fedgl, with and without noise, stop where they have settled so far.
_ROUNDS, _SETTLED = 10, 1e-3


@dataclass(frozen=True)
class Federation:
    """The synthetic clients of one seed: what is known of their graphs, and their signals."""

    config: ConsensusGraphConfig
    seed: int
    truth: Truth
    signals: list[Matrix]

    @classmethod
    def of(cls, clients: int, signals: int, seed: int, **settings: Any) -> Federation:
        """Return the federation of the paper's synthetic data."""
        config = ConsensusGraphConfig(
            clients=clients, signals=str(signals), privacy="sound", **settings
        )
        tables = [synthetic_table(config, seed, i).values for i in range(clients)]
        return cls(config, seed, synthetic_truth(config, seed), tables)

    def watched(self) -> list[int]:
        """Return the clients whose graphs are evaluated."""
        step = max(1, len(self.signals) // WATCHED)
        return list(range(0, len(self.signals), step))[:WATCHED]

    def mean_mcc(self, graphs: Mapping[int, Vector]) -> float:
        """Return the mean MCC of clients' graphs."""
        return float(np.mean([matthews(w, self.truth.weights[i]) for i, w in graphs.items()]))


def pooled_statistic(federation: Federation, epsilon: float) -> pooled.Pooled:
    """Return what the server knows after the noisy sum; ``epsilon`` = 0 adds no noise."""
    config, clients = federation.config, len(federation.signals)
    parts = [pooled.summands(signals, config.clip) for signals in federation.signals]
    total = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0]}
    count = sum(len(signals) for signals in federation.signals)
    if epsilon == 0.0:
        return pooled.pool(total, count, config.clip, 0.0)
    changed = ConsensusGraphConfig.from_settings({**config.settings(), "epsilon": epsilon})
    size = sum(array.size for array in total.values())
    share = plan_share(
        pooled.FRACTION_BITS,
        release_ratio(changed, changed.statistic_share),
        pooled.sensitivity(config.clip),
        size,
        expected_noisers(clients, config.dropout, config.colluding),
    )
    drawn = simulated_sum_noise(
        generator(federation.seed, f"private paper {epsilon:g}"), share, clients
    )
    place = 0
    for name, array in total.items():
        total[name] = array + drawn[place : place + array.size]
        place += array.size
    return pooled.pool(total, count, config.clip, share.width * float(np.sqrt(clients)))


def at_home(
    federation: Federation, known: pooled.Pooled | None
) -> tuple[Vector, dict[int, Vector]]:
    """Return the consensus and the watched clients' graphs; None is learning alone."""
    alpha = federation.config.alpha
    consensus = None if known is None else pooled.consensus_of(known, alpha)
    noise = 0.0 if known is None else known.noise
    graphs = {
        i: personal_graph(federation.signals[i], consensus, noise, alpha).weights
        for i in federation.watched()
    }
    return np.zeros(0) if consensus is None else consensus, graphs


def by_rounds(federation: Federation, epsilon: float) -> tuple[Vector, dict[int, Vector]]:
    """Return fedgl's consensus and graphs from clients' statistics, each noised by itself.

    ``epsilon`` = 0 is ``privacy = "none"``.
    """
    config = federation.config
    # Tuned for five clients; the weights gamma of (19) add up to as many times more.
    sparsity = config.lambda_ * config.clients / 5.0
    if epsilon == 0.0:
        zs = [statistic(signals) for signals in federation.signals]
    else:
        rng = generator(federation.seed, f"each paper {epsilon:g}")
        zs = []
        for signals in federation.signals:
            distance = sensitivity(config.bound, len(signals))
            sigma = gaussian_sigma(epsilon, config.delta, distance)
            z = statistic(signals, config.bound)
            zs.append(z + sigma * rng.standard_normal(z.size))
    known = Constants(
        alpha=config.alpha,
        beta=config.beta,
        rho=config.rho,
        lambda_=sparsity,
        step=0.0,
        local_steps=0,
        rounds=_ROUNDS,
    )
    course = exact_rounds(np.array(zs), known, tolerance=1e-6, settled=_SETTLED)
    return course.consensus[-1], {i: course.weights[-1][i] for i in federation.watched()}


def _private_row(item: tuple[int, int, float, int]) -> dict[str, float]:
    clients, signals, epsilon, seed = item
    federation = Federation.of(clients, signals, seed)
    truth = federation.truth.consensus
    _, alone = at_home(federation, None)
    found = {"alone": federation.mean_mcc(alone)}
    for name, value in (("no noise", 0.0), ("private", epsilon)):
        consensus, graphs = at_home(federation, pooled_statistic(federation, value))
        found[f"consensus, {name}"] = matthews(consensus, truth)
        found[f"at home, {name}"] = federation.mean_mcc(graphs)
    for name, value in (("none", 0.0), ("each", epsilon)) if seed in ROUND_SEEDS else ():
        consensus, graphs = by_rounds(federation, value)
        found[f"consensus, {name}"] = matthews(consensus, truth)
        found[f"clients, {name}"] = federation.mean_mcc(graphs)
    return found


def private(out: Path, console: Console) -> None:
    """Write MCC of the private consensus and of graphs at home, beside alone, open and each."""
    items = [(*setting, seed) for setting in SETTINGS for seed in SEEDS]
    found = on_all_cores(_private_row, items, console, "private")
    rows = []
    for setting in SETTINGS:
        mine = [row for item, row in zip(items, found, strict=True) if item[:3] == setting]
        consensus, device = EXPECTED.get(setting, (np.nan, np.nan))
        rows.append(
            {"clients": setting[0], "signals": setting[1], "epsilon": setting[2]}
            | {name: float(np.mean([r[name] for r in mine if name in r])) for name in mine[0]}
            | {"expected consensus": consensus, "expected at home": device}
        )
    write_rows(out / "private.csv", rows, console)
    show_rows(rows, f"MCC at threshold 0.2, mean of {len(SEEDS)} seeds", console)


def _break_even_row(item: tuple[int, int, int]) -> dict[str, float]:
    clients, signals, seed = item
    federation = Federation.of(clients, signals, seed)
    found = {"alone": federation.mean_mcc(at_home(federation, None)[1])}
    for epsilon in (*EPSILONS, 0.0):
        name = f"epsilon {epsilon:g}" if epsilon else "no noise"
        known = pooled_statistic(federation, epsilon)
        found[name] = federation.mean_mcc(at_home(federation, known)[1])
    return found


def break_even(out: Path, console: Console) -> None:
    """Write MCC of graphs at home over the number of clients, and from where on it pays."""
    points = [(clients, signals) for signals in BREAK_EVEN_SIGNALS for clients in SIZES]
    items = [(*point, seed) for point in points for seed in SEEDS]
    found = on_all_cores(_break_even_row, items, console, "break-even")
    rows = []
    for clients, signals in points:
        pairs = zip(items, found, strict=True)
        mine = [row for item, row in pairs if item[:2] == (clients, signals)]
        row: dict[str, float] = {"clients": float(clients), "signals": float(signals)}
        row |= {name: float(np.mean([r[name] for r in mine])) for name in mine[0]}
        config = ConsensusGraphConfig(clients=clients, signals=str(signals), privacy="sound")
        for epsilon in EPSILONS:
            told = forecast_of(config, [signals] * clients, config.nodes, epsilon)
            row[f"quotient {epsilon:g}"] = told.quotient
        rows.append(row)
    write_rows(out / "break-even.csv", rows, console)
    show_rows(rows, f"MCC of graphs at home, mean of {len(SEEDS)} seeds", console)
    for signals in BREAK_EVEN_SIGNALS:
        mine = [row for row in rows if row["signals"] == signals]
        names = ("alone", *(f"epsilon {e:g}" for e in EPSILONS), "no noise")
        lines = {name: [row[name] for row in mine] for name in names}
        plot = curves(SIZES, lines, x_label="clients", y_label="MCC", log_x=True)
        save_plot(plot, out / f"break-even-{signals}")
        for epsilon in EPSILONS:
            first = _pays_from(mine, f"epsilon {epsilon:g}")
            number = "none of these numbers" if first is None else f"{first:,.0f} clients"
            console.print(
                f"{signals} signals a client, epsilon {epsilon:g}: better than alone by "
                f"{_GAIN:g} in MCC from {number} on"
            )


def _pays_from(rows: list[dict[str, float]], name: str) -> float | None:
    """Return the number of clients from which on ``name`` is better than alone."""
    first = None
    for row in rows:
        better = row[name] >= row["alone"] + _GAIN
        first = (row["clients"] if first is None else first) if better else None
    return first
