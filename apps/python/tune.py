"""Settings chosen by held-out data, from Python: data in memory or in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clients import data_folder
from .run import merged_settings

if TYPE_CHECKING:
    from trellis.apps.tuning.outcome import Tuning


def tune(
    study: str,
    over: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    assignment: Any = None,
    out: str | Path | None = None,
    **options: Any,
) -> Tuning:
    """Choose settings of a study by records that no run has learned from; as ``trellis tune``.

    Parameters
    ----------
    study : str
        A key of ``trellis.STUDIES``.
    over : mapping
        The settings to tune: ``{"rho": "0.1:10:log"}`` as on the command line, or values,
        ``{"rho": [0.1, 1.0, 10.0]}``.
    settings : mapping, optional
        Settings that stay as they are.
    data, assignment : optional
        The clients' data, as in `trellis.run`; None tunes on the study's synthetic data.
    out : folder, optional
        Runs are kept there as they are made, and a second call goes on with them.
    **options
        ``splits``, ``seed``, ``by``, ``better``, ``search``, ``trials``, ``spend``, ``public``,
        ``force`` and ``workers``; see `trellis.apps.tuning.tuner.tune` and
        docs/how-to/choosing-settings.md.

    Returns
    -------
    Tuning
        ``best`` has the settings, ``value`` and ``default_value`` what they and those before are
        worth, ``table()`` all that was tried.

    Examples
    --------
    >>> import trellis
    >>> tuned = trellis.tune(
    ...     "consensus-graph", {"rho": [0.1, 1.0]}, {"nodes": 6, "clients": 3}, splits=1
    ... )
    >>> sorted(tuned.best)
    ['clients', 'nodes', 'rho']
    """
    from trellis.apps.tuning.tuner import tune as choose

    folder = None if out is None else Path(out).resolve()
    with data_folder(study, data, assignment, folder) as files:
        given = merged_settings(study, settings, {})
        return choose(study, over, given, data=files, out=folder, **options)
