"""What noisy sums learned, and what privacy cost: for the report of the method ``moments``.

Beside the private models stand a client alone and the minimiser of (1) without privacy, on the same
synthetic data. Of a client's own data only what was released is known, and the score where samples
were held out.
"""

from __future__ import annotations

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages.page import Block, Facts, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import number

from ..config import ClusterAdmmConfig
from ..data import synthetic_table, synthetic_truth
from ..private.forecast import forecast_of
from ..problem import nmsd, optimum
from ..steps import alone
from .compare import MOST_NUMBERS
from .outcome import Outcome

TITLE = "What privacy cost"
GATHERED = (
    "Clients' own models were gathered for evaluation, as all clients are simulated. On devices "
    "they stay where they are, in the owner's state folder."
)


def summed(result: RunResult, outcome: Outcome | None) -> list[Section]:
    """Return the section; nothing for a run without noisy sums."""
    try:
        config = ClusterAdmmConfig.from_settings(result.config)
    except ConfigError:
        return []
    if not config.sums or outcome is None:
        return []
    blocks: list[Block] = []
    choices = np.asarray(result.arrays.get("choices", np.zeros((0, 3))), dtype=np.float64)
    gathered = choices.ndim == 2 and choices.size > 0 and bool(np.all(np.isfinite(choices)))
    if gathered and outcome.truth is not None:
        blocks.append(Notice(GATHERED))
    blocks += _beside(config, result, outcome, gathered)
    facts: dict[str, object] = {
        "Exchanges": f"{config.exchange_count} noisy sums of moments"
        + (", one for clips" if config.find_clips else "")
        + (", one for the score" if config.held_out else ""),
        "Epsilon of the whole run": number(config.epsilon),
    }
    score, error = (result.headline.get(name) for name in ("score", "score-error"))
    if score is not None and error is not None:
        what = "share of right labels" if config.loss == "logistic" else "explained share"
        facts["Score on held-out samples"] = f"{number(score)} +- {number(error)} ({what})"
    if gathered:
        by_itself = int(np.count_nonzero(choices[:, 1] == 0.0))
        facts["Clients that chose to learn alone"] = f"{by_itself:,} of {len(choices):,}"
    blocks.append(Facts(facts))
    counts = [int(client.get("count", 0)) for client in result.clients]
    size = outcome.models.shape[2]
    if counts and np.all(outcome.known):  # a forecast is of the clients of all servers
        blocks.append(Paragraph(forecast_of(config, counts, size).text()))
    return [Section(TITLE, blocks)]


def _beside(
    config: ClusterAdmmConfig, result: RunResult, outcome: Outcome, gathered: bool
) -> list[Block]:
    """Return NMSD of the private models beside a client alone and no privacy."""
    truth, groups = outcome.truth, outcome.true_groups
    places = [int(client.get("partition", -1)) for client in result.clients]
    if truth is None or groups is None or result.data or config.features != truth.shape[1]:
        return []
    whole = config.clients * config.sample_range()[1] * config.features
    if whole > MOST_NUMBERS or not all(0 <= place < config.clients for place in places):
        return []
    if not np.array_equal(synthetic_truth(config, result.seed).models, truth):
        return []
    made = [synthetic_table(config, result.seed, place) for place in places]
    tables = [(one.X, one.y) for one in made]
    targets = truth[groups]
    best = np.zeros_like(truth)
    for q in np.unique(groups).tolist():
        mine = [tables[k] for k in np.flatnonzero(groups == q)]
        best[q] = optimum(config.loss, mine, max(config.ridge, 1e-6))
    public = outcome.models[outcome.homes, outcome.groups]
    rows = {
        "learning alone": nmsd(alone(config.loss, tables, config.ridge), targets),
        "private models of clusters": nmsd(public, targets),
    }
    if gathered:
        rows["clients' own, made on their devices"] = nmsd(outcome.clients, targets)
    rows["without privacy, minimiser of (1)"] = nmsd(best[groups], targets)
    told = [[name, round(value, 2)] for name, value in rows.items()]
    return [Table(["model", "NMSD, dB"], told, "Distance from the true models; less is better.")]
