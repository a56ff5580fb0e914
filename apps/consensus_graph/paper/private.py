"""What privacy costs, and from how many clients on it pays: tables without messages.

The same functions that devices and server call (`apps.consensus_graph.private`), on a batch of
clients, with the noise of a whole sum in one draw. Graphs of 20 nodes that share half of their
edges; MCC counts an edge where its weight exceeds 0.2 of the graph's largest. Of large federations
an even sample of clients is evaluated; all of them are in the sums. Rounds of fedgl (``none`` and
``each``) are run on the first few seeds.

Nothing here was tuned on these seeds but what `pooled` and `personal` say was measured on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.apps.common.metrics import matthews
from trellis.apps.common.seeds import generator
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.apps.experiments.sweep import show_rows
from trellis.privacy.mechanisms.gaussian import gaussian_sigma
from trellis.privacy.mechanisms.shares import plan_share, simulated_sum_noise
from trellis.privacy.secagg.graph import expected_noisers

from ..config import ConsensusGraphConfig
from ..data import Truth, synthetic_table, synthetic_truth
from ..private import pooled
from ..private.device import release_ratio
from ..private.forecast import forecast_of
from ..private.personal import personal_graph
from ..problem import Matrix, Vector, sensitivity, statistic
from .algorithm import Constants, exact_rounds
from .judging import holds, mean_and_error, ordered, outcome
from .points import Scores

WATCHED = 25
# Measured when the constants of `pooled` and `personal` were chosen, on these seeds: consensus and
# graphs at home, where alone has .58 to .42. To be reached within .02.
EXPECTED = {
    (200, 50, 1.0): (0.96, 0.64),
    (200, 50, 0.3): (0.88, 0.66),
    (1000, 20, 1.0): (0.98, 0.64),
    (20, 50, 1.0): (0.47, 0.577),
}
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
    most_watched: int = WATCHED

    @classmethod
    def of(
        cls, clients: int, signals: int, seed: int, *, watched: int = WATCHED, **settings: Any
    ) -> Federation:
        """Return the federation of the paper's synthetic data."""
        config = ConsensusGraphConfig(
            clients=clients, signals=str(signals), privacy="dp", **settings
        )
        tables = [synthetic_table(config, seed, i).values for i in range(clients)]
        return cls(config, seed, synthetic_truth(config, seed), tables, watched)

    def watched(self) -> list[int]:
        """Return the clients whose graphs are evaluated."""
        step = max(1, len(self.signals) // self.most_watched)
        return list(range(0, len(self.signals), step))[: self.most_watched]

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


Item = tuple[int, int, float, int, int, bool, int]


def _private_row(item: Item) -> dict[str, float]:
    clients, signals, epsilon, nodes, watched, by_round, seed = item
    federation = Federation.of(clients, signals, seed, watched=watched, nodes=nodes)
    truth = federation.truth.consensus
    _, alone = at_home(federation, None)
    found = {"alone": federation.mean_mcc(alone)}
    for name, value in (("no noise", 0.0), ("private", epsilon)):
        consensus, graphs = at_home(federation, pooled_statistic(federation, value))
        found[f"consensus, {name}"] = matthews(consensus, truth)
        found[f"at home, {name}"] = federation.mean_mcc(graphs)
    for name, value in (("none", 0.0), ("each", epsilon)) if by_round else ():
        consensus, graphs = by_rounds(federation, value)
        found[f"consensus, {name}"] = matthews(consensus, truth)
        found[f"clients, {name}"] = federation.mean_mcc(graphs)
    return found


def private(making: Making) -> list[Finding]:
    """Tabulate MCC of the private consensus and of graphs at home, beside alone, open and each."""
    cases = [(int(c), int(n), float(e)) for c, n, e in making["cases"]]
    # Rounds of fedgl over up to a thousand clients take long: on the first few seeds only.
    rounds = list(making.seeds)[: making["round-seeds"]]
    items: list[Item] = [
        (*case, making["nodes"], making["watched"], seed in rounds, seed)
        for case in cases
        for seed in making.seeds
    ]
    found = making.on_all_cores(_private_row, items)
    rows, points = [], {}
    for case in cases:
        mine = [row for item, row in zip(items, found, strict=True) if item[:3] == case]
        consensus, device = EXPECTED.get(case, (np.nan, np.nan))
        row: dict[str, Any] = {"clients": case[0], "signals": case[1], "epsilon": case[2]}
        for name in mine[0]:
            mean, error = mean_and_error([r[name] for r in mine if name in r])
            row |= {name: mean, f"{name} standard error": error}
        rows.append(row | {"expected consensus": consensus, "expected at home": device})
        where = f"with {case[0]:,} clients of {case[1]} signals, epsilon {case[2]:g}"
        points[where] = (
            np.array([r["at home, private"] for r in mine]),
            np.array([r["alone"] for r in mine]),
        )
    making.table(rows)
    shown = [{k: v for k, v in row.items() if "standard" not in k} for row in rows]
    show_rows(shown, f"MCC at threshold 0.2, mean of {len(making.seeds)} seeds", making.console)
    many = {where: pair for where, pair in points.items() if not where.startswith("with 20 ")}
    what = "MCC of graphs made at home with the private consensus against learning alone"
    return [ordered("private-pays", what, many or points, seeds=len(making.seeds))]


def _break_even_row(item: tuple[int, int, tuple[float, ...], int, int, int]) -> dict[str, float]:
    clients, signals, epsilons, nodes, watched, seed = item
    federation = Federation.of(clients, signals, seed, watched=watched, nodes=nodes)
    found = {"alone": federation.mean_mcc(at_home(federation, None)[1])}
    for epsilon in (*epsilons, 0.0):
        name = f"epsilon {epsilon:g}" if epsilon else "no noise"
        known = pooled_statistic(federation, epsilon)
        found[name] = federation.mean_mcc(at_home(federation, known)[1])
    return found


def break_even(making: Making) -> list[Finding]:
    """Draw MCC of graphs at home over the number of clients, and say from where on it pays."""
    epsilons, sizes = tuple(making["epsilons"]), making["sizes"]
    findings_told, worst = [], {}
    for signals in making["signals"]:
        items = [
            (size, signals, epsilons, making["nodes"], making["watched"], seed)
            for size in sizes
            for seed in making.seeds
        ]
        found = making.on_all_cores(_break_even_row, items, f"break-even, {signals} signals")
        scores = Scores(
            {
                (line, size, "mcc"): np.array(
                    [f[line] for i, f in zip(items, found, strict=True) if i[0] == size]
                )
                for size in sizes
                for line in found[0]
            }
        )
        lines = list(found[0])
        rows = scores.rows("clients", sizes, lines, ("mcc",))
        for row in rows:
            config = ConsensusGraphConfig(
                clients=int(row["clients"]), signals=str(signals), privacy="dp"
            )
            for epsilon in epsilons:
                told = forecast_of(config, [signals] * config.clients, config.nodes, epsilon)
                row[f"forecast ratio {epsilon:g}"] = told.ratio
        making.table(rows, str(signals))
        making.plot(scores.plot(sizes, lines, "mcc", x_label="clients", log_x=True), str(signals))
        for epsilon in epsilons:
            name = f"epsilon {epsilon:g}"
            first = pays_from(rows, f"mcc {name}", "mcc alone")
            told_from = "none of these numbers" if first is None else f"{first:,.0f} clients"
            findings_told.append(f"from {told_from} at {name} with {signals} signals")
            for size in sizes:
                where = f"{size} clients, {name}, {signals} signals"
                worst[where] = scores.at("alone", size, "mcc") - scores.at(name, size, "mcc")
    lost = {w: v for w, v in worst.items() if holds(v, np.full(len(v), making["loss"])) > 0}
    most = max(worst, key=lambda w: worst[w].mean())
    text = f"{'; '.join(findings_told)}; at worst {worst[most].mean():.3f} below alone ({most})"
    verdict, why = outcome(dict.fromkeys(lost, -1) or {"": 1}, lost="more than that lost with")
    if lost and len(lost) < len(worst):
        verdict = "partly"
    return [Finding("break-even-harmless", text, verdict, why, len(making.seeds))]


def pays_from(rows: Sequence[Mapping[str, Any]], name: str, alone: str) -> float | None:
    """Return the number of clients from which on ``name`` is better than alone."""
    first = None
    for row in rows:
        better = row[name] >= row[alone] + _GAIN
        first = (row["clients"] if first is None else first) if better else None
    return first
