"""Running a study from Python: in this process, or in Flower's simulation runtime."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis import apps
from trellis.apps.common.files.run_folder import refuse_to_replace
from trellis.apps.common.own_data.choosing import Chosen, choose_places, places_of_files
from trellis.apps.common.own_data.scaling import scales_by_value
from trellis.apps.common.progress import publish, row_of
from trellis.apps.common.results import RunResult, is_held
from trellis.apps.common.run_config import COMMON
from trellis.apps.common.settings import ConfigError, Scalar, config_class, in_current_words
from trellis.apps.common.tables import client_files, client_sources, shared_dataset
from trellis.strategies.core.enrolment import StudyError

if TYPE_CHECKING:
    from trellis.sim.faults import Fault

ENGINES = ("local", "flower")
_THIN_APP = """\
[project]
name = "{study}"
version = "{version}"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "trellis"

[tool.flwr.app.components]
serverapp = "trellis.apps.dispatch:server_app"
clientapp = "trellis.apps.dispatch:client_app"

[tool.flwr.app.config]
{settings}"""


def run(
    study: str,
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | Path | None = None,
    engine: str = "local",
    seed: int = 1,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    report: bool | None = None,
    workers: int = 0,
    faults: Mapping[int, Fault] | None = None,
) -> RunResult:
    """Run a study and return its result.

    Parameters
    ----------
    study : a key of `apps.STUDIES`
    settings : kebab-case settings of the study
    data : a folder with one csv or npz file a client; None uses the study's synthetic data. A study
        of graphs also takes a data set of graphs, dealt to ``clients``, or one sub-folder a client
    engine : ``local`` runs in this process, ``flower`` in Flower's simulation runtime
    seed : the same seed gives the same result, on both engines
    out : a folder for the result; None keeps nothing on disk
    resume : go on from the checkpoint in ``out``
    force : where ``out`` holds another run, delete that first; it is refused otherwise
    report : write ``report.html``; by default where ``out`` is given
    workers : threads of the in-process engine; 0 runs clients one after the other
    faults : simulated faults by partition, in-process engine only (`trellis.sim.faults`)
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine!r}: use one of {', '.join(ENGINES)}")
    if resume and force:
        raise ConfigError("resume and force: a run is either gone on with or begun anew")
    run_config = make_run_config(study, settings, data=data, seed=seed, resume=resume, force=force)
    run_config["report"] = bool(out) if report is None else report
    clients = int(run_config[f"{study}.clients"])
    with _folder(out) as folder:
        if data is not None and folder == Path(data).resolve():
            raise ConfigError(
                f"out={str(out)!r}: holds the clients' files, and the tables of a run would pass "
                "for more of them; choose another folder"
            )
        run_config["out"] = str(folder)
        if not resume and not is_held(folder):
            # The ServerApp refuses it, too; here it is said before any runtime is started.
            refuse_to_replace(folder, force=force)
        if engine == "local":
            nodes = [
                {"partition-id": i, "num-partitions": clients, "simulation": True}
                for i in range(clients)
            ]
            from trellis.sim.grid import run_local

            run_local(
                apps.server_app,
                apps.client_app,
                nodes,
                run_config,
                workers=workers,
                faults=faults,
            )
        else:
            if faults or workers:
                raise ConfigError("workers and faults belong to the in-process engine")
            _run_in_flower(run_config, clients)
        result = RunResult.load(folder)
        if out is None:
            result.folder = None
        return result


def make_run_config(
    study: str,
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | Path | None = None,
    seed: int = 1,
    resume: bool = False,
    force: bool = False,
) -> dict[str, Scalar]:
    """Return the Flower run config of a study; settings that are not given keep their default.

    With ``data`` that is the default for a person's own data (`StudyConfig.own_data`).
    """
    settings = in_current_words(settings or {})
    if data is not None:
        settings = config_class(study).for_own_data(settings)
    files = [] if data is None else _client_files(study, Path(data))
    reasons: dict[str, str] = {}
    if files:
        settings.setdefault("clients", len(files))
        if int(settings["clients"]) > len(files):
            raise ConfigError(
                f"clients={settings['clients']}: {data} holds {len(files)} files, one a client"
            )
    kind = config_class(study)
    if data is not None:
        chosen = Chosen(kind, settings)
        choose_places(chosen, places_of_files(files), "assignment.csv")
        settings, reasons = chosen.settings, chosen.reasons
    if "scales" in settings:
        settings["scales"] = scales_by_value(str(settings["scales"]))
    config = kind.from_settings(settings)
    return {
        **COMMON,
        "study": study,
        "seed": seed,
        "resume": resume,
        "force": force,
        "report": False,
        "data": "" if data is None else str(Path(data).resolve()),
        "chosen": ", ".join(reasons.values()),
        **config.run_config(),
    }


def app_folder(study: str) -> Path:
    """Return the folder with the pyproject.toml of the Flower app that runs a study."""
    if study in apps.STUDIES:
        return _thin_app(study)
    from trellis.apps.outside import app_folder_of

    return app_folder_of(apps.study_package(study))


@cache
def _thin_app(study: str) -> Path:
    """Write the app of a study of this project; its folder lasts as long as this process.

    It names the installed components and the study's settings with their defaults: the same bundle
    for every run, so that a device keeps one.
    """
    from trellis import __version__
    from trellis.sim.run_config import toml

    parent = tempfile.mkdtemp(prefix="trellis-app-")
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    folder = Path(parent) / study
    folder.mkdir()
    settings = toml(make_run_config(study))
    text = _THIN_APP.format(study=study, version=__version__, settings=settings)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def _client_files(study: str, folder: Path) -> list[Path]:
    """Return what is whose in a folder, in order; nothing where it is one data set to be dealt."""
    if not getattr(apps.study_module(study, "data"), "GRAPH_FOLDERS", False):
        return client_files(folder)
    return [] if shared_dataset(folder) else client_sources(folder)


def _run_in_flower(run_config: Mapping[str, Scalar], clients: int) -> None:
    from trellis.sim.flower import simulate

    folder = Path(str(run_config["out"]))
    before = _header(folder)
    study = str(run_config["study"])
    rounds = int(run_config[f"{study}.rounds"])

    def tell(line: str) -> None:
        if row := row_of(line):
            publish(study, rounds, row)

    try:
        ended = simulate(app_folder(study), run_config, nodes=clients, on_log=tell)
    except KeyboardInterrupt:
        if _header(folder) != before:
            _note_interruption(folder)
        raise
    if not ended.ok and _header(folder) != before:
        # What the study wrote says more than the end of Flower's log.
        with suppress(FileNotFoundError, ValueError):
            notes = RunResult.load(folder).notes
            if notes:
                raise StudyError(f"{notes[-1]} (Flower: {ended.status})")
    ended.check()


def _note_interruption(folder: Path) -> None:
    """Say in a run's folder that it was interrupted: its ServerApp was ended before it could."""
    with suppress(FileNotFoundError, ValueError):
        result = RunResult.load(folder)
        if result.status == "running":
            result.status = "interrupted"
            result.notes.append(
                "The run was interrupted; it can be resumed from its last checkpoint."
            )
            result.save(folder)


def _header(folder: Path) -> bytes:
    """Return ``run.json`` as it is; nothing where there is none."""
    with suppress(FileNotFoundError):
        return (folder / "run.json").read_bytes()
    return b""


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """Yield the absolute output folder, a temporary one where none is wanted."""
    if out is not None:
        yield Path(out).resolve()
    else:
        with tempfile.TemporaryDirectory(prefix="trellis-") as folder:
            yield Path(folder)
