"""What a report says of a run with noise in sums."""

from __future__ import annotations

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages import plots
from trellis.apps.pages.network import known_servers
from trellis.apps.pages.report import Block, Facts, FigureBlock, Paragraph, Section
from trellis.apps.pages.wording import number

from ..config import ServerGraphConfig
from ..forecast import forecast_of, noise_of_round
from ..private import Terms

SUMS = (
    "Clients added noise to what their server learned as a secure sum (privacy dp). Every model "
    "is computed from such sums, so servers sent each other their models as they are."
)


def private_section(result: RunResult) -> Section:
    """Return epsilon over the rounds, what privacy cost, and what it would cost otherwise."""
    rows = result.metrics
    x = [row.get("round", k + 1.0) for k, row in enumerate(rows)]
    figure = plots.curves(x, {"epsilon": [row["epsilon"] for row in rows]}, y_label="epsilon")
    text = (
        f"In the end {number(rows[-1]['epsilon'])}, of the client that spent most, by a bound that "
        "needs no library. It grows as the root of the rounds, and the noise is for a twentieth "
        "more rounds than planned: some may have to be made again."
    )
    svg = plots.svg(figure, f"Epsilon against the round. {text}")
    blocks: list[Block] = [FigureBlock("Epsilon over the rounds", svg, text)]
    blocks += _cost(result)
    try:
        blocks += _forecast(result)
    except (ConfigError, ValueError) as error:
        blocks.append(Paragraph(f"No forecast: {error}"))
    if own := result.ledger.get("personal"):
        blocks.append(Facts({"Models of the clients' own": own}))
    return Section("Privacy: noise in every sum", blocks)


def _cost(result: RunResult) -> list[Block]:
    headline, texts = result.headline, []
    if "msd" in headline and "alone-msd" in headline:
        gain = headline["alone-msd"] - headline["msd"]
        how = f"{gain:.1f} dB closer to" if gain >= 0.0 else f"{-gain:.1f} dB further from"
        texts.append(
            f"The private model ({headline['msd']:.1f} dB) is {how} the minimiser than a client "
            f"by itself with its raw samples ({headline['alone-msd']:.1f} dB)."
        )
    if "score" in headline:
        texts.append(
            f"Score of the private model on held-out samples: {headline['score']:.3f}, with noise "
            f"of standard deviation {headline['score-noise']:.3f}; 1 is all labels right."
        )
    return [Paragraph(" ".join(texts))] if texts else []


def _forecast(result: RunResult) -> list[Block]:
    config = ServerGraphConfig.from_settings(result.config)
    counts = [int(client["count"]) for client in result.clients]
    models = result.arrays["models"]
    # It is of the clients of all servers; one server has the numbers of its own only.
    if not counts or not config.sums or not np.all(known_servers(models)):
        return []
    size = models.shape[1]
    facts: dict[str, object] = {
        "Noise in a server's mean gradient per round": noise_of_round(
            config, counts, config.epsilon
        ),
        "Noise is for so many releases of a client": Terms.of(config).releases,
    }
    return [Facts(facts), Paragraph(forecast_of(config, counts, size).text())]
