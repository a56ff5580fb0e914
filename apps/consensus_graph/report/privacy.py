"""What a report of consensus-graph says of privacy: what was done, what it cost, what to expect."""

from __future__ import annotations

from collections.abc import Sequence

from trellis.apps.common.metrics import EDGE_THRESHOLD
from trellis.apps.common.results import RunResult
from trellis.apps.consensus_graph.config import ConsensusGraphConfig
from trellis.apps.consensus_graph.private.forecast import forecast_of
from trellis.apps.pages.report import number

TIGHT = f"{EDGE_THRESHOLD:g}"

_SUM = (
    "The consensus was made from one secure sum over all clients, with the noise of one central "
    "mechanism in it. Each client made its own graph from its raw data and the consensus, at home, "
    "and chose by its own held-out signals how much to trust it (pull; 0 is alone). "
)
_ALONE = (
    "Each client learned alone, at home: nothing was released, so nothing was spent, and there is "
    "nothing to noise. "
)
_GATHERED = (
    "Clients' own graphs are shown because this is a simulation: they were gathered for "
    "evaluation. On devices they stay where they are made."
)
KEPT = (
    "Clients keep them: none of them is in this report. Their owners find them in their state "
    "folder, under results."
)
_PAPER = (
    "The noise follows the article's Theorem 3, which does not hold: the true sensitivity of what "
    "is released was measured at 166 to 232 times the claimed one. This run is not private."
)


def privacy_notice(
    result: RunResult, privacy: str, signals: Sequence[int | None], nodes: int
) -> str:
    """Return what noise meant for this run, and what may be expected of other budgets.

    Parameters
    ----------
    signals : number of signals of every client, None where it is not known
    """
    if privacy == "paper":
        return _PAPER
    config = ConsensusGraphConfig.from_settings(result.config)
    text = _SUM if config.sums else _ALONE
    if config.at_home:
        text += (_GATHERED if "weights" in result.arrays else KEPT) + " "
    counts = [int(count) for count in signals if count]
    if config.sums and counts:
        text += forecast_of(config, counts, nodes).text() + " "
    return text + _cost(result)


def _cost(result: RunResult) -> str:
    """Return what privacy left of the result, in the study's own measure."""
    known, text = result.headline, ""
    if "mcc" in known and "alone-mcc" in known and "consensus-mcc" in known:
        text += (
            f"Against the true graphs (MCC, threshold {TIGHT}): the consensus "
            f"{number(known['consensus-mcc'])}, clients' graphs {number(known['mcc'])}, and "
            f"{number(known['alone-mcc'])} had they learnt alone. "
        )
    if "held-out" in known:
        text += (
            f"On held-out signals: {known['held-out']:.0%} of them are more likely with the "
            f"consensus than with no graph (noise of {known['held-out-noise']:.0%} in it)"
        )
        if "helped" in known:
            text += (
                f", and it helped {known['helped']:.0%} of the clients "
                f"(noise of {known['helped-noise']:.0%})"
            )
        text += ". "
        if not all(0.0 <= known.get(share, 0.0) <= 1.0 for share in ("held-out", "helped")):
            text += "With its noise a share can come out below 0 or above 100 %. "
    return text.strip()
