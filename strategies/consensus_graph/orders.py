"""Which sums a server of the private consensus may ask for; its clients know no more of it."""

from __future__ import annotations

STATISTIC, SCORE = "statistic", "score"
