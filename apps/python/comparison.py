"""Runs side by side, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trellis.apps.common.results import RunResult
from trellis.apps.runs.compare import Comparison
from trellis.apps.runs.compare import compare as compare_runs


def compare(*runs: RunResult | str | Path, names: Sequence[str] | None = None) -> Comparison:
    """Return two runs or more side by side.

    Parameters
    ----------
    *runs : Result or folder
        What `trellis.run` returned, or folders that runs were kept in.
    names : sequence of str, optional
        What to call them; by default their folders' names, or run 1, run 2 and so on.

    Returns
    -------
    Comparison
        ``.to_frame()`` has the numbers and the settings that differ, ``.edges()`` the edges that
        one run has and another has not, ``.html()`` a page.

    Examples
    --------
    >>> import trellis
    >>> one, other = (trellis.run("consensus-graph", nodes=8, rounds=5, rho=r) for r in (0.1, 3.0))
    >>> both = trellis.compare(one, other, names=["loose", "tight"])
    >>> both.settings["rho"]
    ['0.1', '3.0']
    >>> list(both.to_frame().columns)
    ['loose', 'tight']
    >>> list(both.edges("consensus").columns)
    ['graph', 'from', 'to', 'loose', 'tight']
    """
    return compare_runs(runs, names)
