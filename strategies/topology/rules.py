"""The names of rules for combination matrices, as settings give them; see `weights`.

Apart from it because devices and `trellis list` read settings: no numpy, scipy or networkx here.
"""

from __future__ import annotations

import difflib
import math

_PLAIN_AVERAGES = ("neighbourhood", "neighborhood", "average", "averaging", "uniform", "mean")


def check_rule(rule: str) -> None:
    """Refuse a name that is no rule, and plain averages by their name."""
    name, colon, text = rule.partition(":")
    if name == "laplacian" and colon:
        try:
            usable = 0.0 < float(text) < math.inf
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"weights = {rule!r}: eps must be a positive number")
    elif rule in _PLAIN_AVERAGES:
        raise ValueError(
            f"weights = {rule!r}: plain averages over neighbourhoods are not doubly stochastic "
            f"unless all servers have as many neighbours, and then they are 'metropolis'; take it"
        )
    elif rule not in ("auto", "metropolis", "laplacian", "own"):
        known = ("metropolis", "laplacian", "own")
        close = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"weights = {rule!r}: unknown; {hint} Known: {', '.join(known)}")
