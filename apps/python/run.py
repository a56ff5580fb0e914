"""A study from Python: settings as keywords, data in memory or in files, a result in hand."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError, config_class
from trellis.apps.common.tables import given_in_memory

from .clients import data_folder
from .result import Result

if TYPE_CHECKING:
    from trellis.sim.faults import Fault


def run(
    study: str,
    settings: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    assignment: Any = None,
    engine: str = "local",
    seed: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    report: bool | None = None,
    workers: int = 0,
    faults: Mapping[int, Fault] | None = None,
    **keywords: Any,
) -> Result:
    """Run a study and return its result; the same as ``trellis run``.

    Parameters
    ----------
    study : str
        A key of ``trellis.STUDIES``.
    settings : mapping, optional
        Settings of the study by name, such as ``{"local-steps": 25}``.
    data : folder, mapping or sequence, optional
        The clients' data: a folder with one csv or npz file per client; or a mapping of clients'
        names to what they have; or a sequence, whose clients are called client-1, client-2 and so
        on. A client has a DataFrame (columns are variables; a column ``y`` is the target where the
        study learns from targets), an array (rows, columns), ``(X, y)`` or ``(X, y, columns)``; in
        gromov-wasserstein a list of networkx graphs or torch_geometric ``Data``. None uses the
        study's synthetic data.
    assignment : mapping or DataFrame, optional
        With data in memory, in server-graph and cluster-admm: which server, and which cluster,
        every client belongs to, such as ``{"berlin": {"server": 0, "cluster": 1}}``.
    engine : {"local", "flower"}
        In this process, or in Flower's simulation runtime; both give the same bits.
    seed : int, optional
        The same seed gives the same result; 1 by default.
    out : folder, optional
        Keep result, report and checkpoint here; None keeps nothing on disk.
    resume : bool
        Go on with the run in ``out``. Settings and seed that are not given are those of that run.
        Data in memory is not kept: give the same data again.
    force : bool
        Where ``out`` holds another run, delete that first; it is refused otherwise.
    report : bool, optional
        Write ``report.html``; by default where ``out`` is given.
    workers : int
        Threads of the in-process engine; 0 runs clients one after the other.
    faults : mapping, optional
        Simulated faults by the client's place, in-process engine only; see `trellis.sim.faults`.
    **keywords
        More settings, in snake_case: ``local_steps`` is ``local-steps``, ``lambda_`` is ``lambda``.

    Returns
    -------
    Result

    Raises
    ------
    ConfigError, DataError
        Both are ``ValueError``; they name the setting or the client, and say what to do.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> rng = np.random.default_rng(0)
    >>> data = {name: rng.normal(size=(30, 5)) for name in ("berlin", "madrid", "paris")}
    >>> result = trellis.run("consensus-graph", data=data, rho=0.5)
    >>> result.status, [client["name"] for client in result.clients]
    ('completed', ['berlin', 'madrid', 'paris'])
    """
    from trellis.apps.common.runner import run as run_study

    wanted = merged_settings(study, settings, keywords)
    folder = None if out is None else Path(out).resolve()
    before = _before(study, folder) if resume else None
    if before is not None:
        wanted = {**before.config, **wanted}
        seed = before.seed if seed is None else seed
        if data is None and before.data:
            data = _data_before(before)
    with data_folder(study, data, assignment, folder) as files:
        if before is not None and files is not None:
            _refuse_other_data(before, files)
        found = run_study(
            study,
            wanted,
            data=files,
            engine=engine,
            seed=1 if seed is None else seed,
            out=folder,
            resume=resume,
            force=force,
            report=report,
            workers=workers,
            faults=faults,
        )
    return Result.of(found)


def merged_settings(
    study: str, settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings by their kebab-case names, from a mapping and from keywords.

    Raises
    ------
    ConfigError
        For an unknown name, with the nearest known one; for one that is given twice.
    """
    known = {field.name.rstrip("_").replace("_", "-") for field in fields(config_class(study))}
    found: dict[str, Any] = {}
    for given, words in (settings or {}, False), (keywords, True):
        for name, value in given.items():
            key = str(name).rstrip("_").replace("_", "-")
            if key not in known:
                raise ConfigError(_unknown(study, str(name), key, known, words))
            if key in found:
                raise ConfigError(f"{name}: given twice, in settings and as a keyword")
            found[key] = value
    return {key: _value(value) for key, value in found.items()}


def _value(value: Any) -> Any:
    """Return a value as a run config takes it: one number each is a text with commas."""
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return value.item() if hasattr(value, "item") else value


def _unknown(study: str, name: str, key: str, known: set[str], words: bool) -> str:
    options = [option for option in signature(run).parameters if option not in _NO_OPTIONS]
    as_keyword = {setting: setting.replace("-", "_") for setting in known}
    as_keyword["lambda"] = "lambda_"  # a word of Python's own
    near = difflib.get_close_matches(key, [*known, *(options if words else ())], n=1)
    kind = "setting or option" if words else "setting"
    if not near:
        shown = sorted(as_keyword[setting] if words else setting for setting in known)
        return f"{name}: unknown {kind} of {study}; known: {', '.join(shown)}"
    meant = as_keyword.get(near[0], near[0]) if words else near[0]
    return f"{name}: unknown {kind} of {study}; did you mean {meant!r}?"


_NO_OPTIONS = ("study", "settings", "keywords")


def _before(study: str, folder: Path | None) -> RunResult:
    if folder is None:
        raise ConfigError("resume=True: needs out, the folder of the run to go on with")
    before = RunResult.load(folder)
    if before.study != study:
        raise ConfigError(f"out={str(folder)!r}: holds a run of {before.study}, not of {study}")
    return before


def _data_before(before: RunResult) -> Path:
    if given_in_memory(before.data):
        raise ConfigError(
            "resume=True: the data of this run was given in Python and is not kept; give the same "
            "data again, data=..."
        )
    return Path(before.data)


def _refuse_other_data(before: RunResult, files: Path) -> None:
    memory = given_in_memory(before.data), given_in_memory(files)
    if any(memory) and Path(before.data).name != files.name:
        raise ConfigError(
            "resume=True: this is other data than the run was started with; give the same data "
            "again, in the same order, or start in another folder"
        )
