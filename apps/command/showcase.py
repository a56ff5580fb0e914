"""What ``trellis run all`` runs: every study twice on the same data, open and under privacy.

Sizes are such that all of it takes a minute or two, with as many clients as noise in a sum needs to
be worth having: the same epsilon is worth more the more clients share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult
    from trellis.apps.pages.wording import Wording


@dataclass(frozen=True)
class Showcase:
    """Settings of a study's two runs: ``both`` for either, ``dp`` for the private one."""

    both: Mapping[str, Any] = field(default_factory=dict)
    dp: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The settings of the runs, by what is added to the name of their folder."""
        return {
            "": {**self.both, "privacy": "none"},
            "-dp": {**self.both, "privacy": "dp", **self.dp},
        }


SHOWCASES: dict[str, Showcase] = {
    "cluster-admm": Showcase({"samples": "20"}),
    "consensus-graph": Showcase({"clients": 100}),
    "joint-precision": Showcase(
        {
            "variables": 18,
            "blocks": 3,
            "clients": 30,
            "samples": "120",
            "path": 10,
            "lambda1": 0.03,
            "tolerance": 1e-4,
        }
    ),
    "server-graph": Showcase(
        {"method": "none", "rounds": 50, "step": 1.0},
        {"method": "hybrid", "batch": 0, "step": 0.6},
    ),
}


def cost_rows(
    results: Sequence[RunResult], wordings: Mapping[str, Wording]
) -> list[tuple[str, ...]]:
    """Return a row per study: measure, open, private, epsilon, alone, what privacy cost, in words.

    For studies with both runs completed whose wording names a measure.
    """
    rows: list[tuple[str, ...]] = []
    for study, words in wordings.items():
        done = {
            str(result.config.get("privacy")): result
            for result in results
            if result.study == study and result.status == "completed"
        }
        key = words.measure
        if not key or any(key not in done[m].headline for m in ("none", "dp") if m in done):
            continue
        if not {"none", "dp"} <= set(done):
            continue
        before, after = (done[mode].headline[key] for mode in ("none", "dp"))
        alone = done["dp"].headline.get(f"alone-{key}")
        rows.append(
            (
                study,
                words.label(key),
                f"{before:.3g}",
                f"{after:.3g}",
                f"{float(done['dp'].ledger.get('epsilon', 0.0)):.3g}",
                "-" if alone is None else f"{alone:.3g}",
                _verdict(before, after, lower=words.lower_is_better),
            )
        )
    return rows


COST_HEADERS = (
    "study",
    "measured by",
    "open",
    "private",
    "epsilon",
    "learning alone",
    "what privacy cost",
)


def _verdict(before: float, after: float, *, lower: bool) -> str:
    worse = after - before if lower else before - after
    if abs(worse) < 5e-4 * max(1.0, abs(before)):
        return "nothing"
    return f"{worse:.2g} worse" if worse > 0 else f"none: {-worse:.2g} better"
