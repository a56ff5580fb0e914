"""Trellis: federated graph learning under privacy, one Flower app with a study a folder.

A new study is a folder here and a line in `STUDIES` (``trellis new`` makes both), or a package of
its own (`outside`). `dispatch` has the ServerApp and the ClientApp that Flower runs; `common` what
every study uses, `command` the ``trellis`` command, `pages` what draws and writes, `python` what
``import trellis`` shows, `runs` what gathers and compares runs that have ended, `tuning` what
chooses settings, `cases` what works real data through to a page, `experiments` what the papers'
figures share. Nothing is imported before it is needed: ``trellis --help`` and a device's ClientApp
start with this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.apps.common.results import RunResult

STUDIES = {
    "cluster-admm": "trellis.apps.cluster_admm",
    "consensus-graph": "trellis.apps.consensus_graph",
    "gromov-wasserstein": "trellis.apps.gromov_wasserstein",
    "joint-precision": "trellis.apps.joint_precision",
    "server-graph": "trellis.apps.server_graph",
}


def study_package(study: str) -> str:
    """Return the package of a study: of this project, or of another that is installed."""
    if study in STUDIES:
        return STUDIES[study]
    from trellis.apps.outside import outside_package

    return outside_package(study)


def study_module(study: str, part: str = "") -> ModuleType:
    """Return one module of a study, ``client_app`` for one; imported when it is needed only.

    Raises
    ------
    ConfigError
        For a study that nobody has.
    ImportError
        Where a study of another package cannot be loaded; names the package.
    """
    package = study_package(study)
    if study in STUDIES:
        return import_module(f"{package}.{part}" if part else package)
    from trellis.apps.outside import load

    return load(study, package, part)


def late(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: every name of ``where`` from the module it names.

    What a study calls its numbers is asked for by every run, what draws them by reports only.
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{where[name]}"), name)

    return get


def run(study: str, settings: Mapping[str, Any] | None = None, **options: Any) -> RunResult:
    """Run a study and return its result; the same as ``trellis run``.

    Parameters
    ----------
    study : a key of `STUDIES`
    settings : kebab-case settings of the study, such as ``{"rho": 0.3, "local-steps": 25}``
    options : ``data``, ``engine``, ``seed``, ``out`` and more, see `trellis.apps.common.runner.run`
    """
    from trellis.apps.common.runner import run as run_study

    return run_study(study, settings, **options)


def __getattr__(name: str) -> Any:
    """Return ``server_app`` or ``client_app``; Flower is imported by whoever asks for them."""
    if name in ("server_app", "client_app"):
        return getattr(import_module("trellis.apps.dispatch"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
