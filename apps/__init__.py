"""Trellis: federated graph learning under privacy, one Flower app with a study a folder.

`server_app` and `client_app` are what Flower runs, on every runtime; they hand over to the study
that the run config names. A new study is a folder here and a line in `STUDIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from sim.config import ConfigError
from sim.threads import one_blas_thread

if TYPE_CHECKING:
    from sim.record import RunResult

STUDIES = {
    "cluster-admm": "apps.cluster_admm",
    "consensus-graph": "apps.consensus_graph",
    "gromov-wasserstein": "apps.gromov_wasserstein",
    "joint-precision": "apps.joint_precision",
    "server-graph": "apps.server_graph",
}


def study_module(study: str, part: str) -> ModuleType:
    """Return one module of a study, ``client_app`` for one; imported when it is needed only."""
    if study not in STUDIES:
        raise ConfigError(f"study={study!r}: use one of {', '.join(STUDIES)}")
    return import_module(f"{STUDIES[study]}.{part}")


class StudyClientApp(ClientApp):
    """A ClientApp that hands every message to the study of the run."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message."""
        app: ClientApp = study_module(str(context.run_config["study"]), "client_app").app
        # A product's last bits depend on the number of threads; every runtime uses one.
        with one_blas_thread():
            return app(message, context)


client_app = StudyClientApp()
server_app = ServerApp()


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    app: ServerApp = study_module(str(context.run_config["study"]), "server_app").app
    app(grid, context)


def run(study: str, settings: Mapping[str, Any] | None = None, **options: Any) -> RunResult:
    """Run a study and return its result; the same as ``trellis run``.

    Parameters
    ----------
    study : a key of `STUDIES`
    settings : kebab-case settings of the study, such as ``{"rho": 0.3, "local-steps": 25}``
    options : ``data``, ``engine``, ``seed``, ``out`` and more, see `apps.runner.run`
    """
    from .runner import run as run_study

    return run_study(study, settings, **options)
