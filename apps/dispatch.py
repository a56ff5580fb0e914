"""What Flower runs, on every runtime: apps that hand over to the study the run config names."""

from __future__ import annotations

import gc
from copy import copy
from functools import cache

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from trellis.apps import study_module
from trellis.apps.common.device_mod import device_mod
from trellis.apps.common.federation import (
    SIZE,
    answer_size,
    complete_for,
    engine_of,
    supernodes_of,
)
from trellis.apps.common.node import is_simulated
from trellis.apps.common.run_config import complete
from trellis.apps.common.threads import one_blas_thread


class StudyClientApp(ClientApp):
    """A ClientApp that hands every message to the study of the run."""

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message; on a device within what its owner allows, see `device_mod`."""
        if "bridge" in context.node_config:
            from trellis.apps.network.bridge import answer

            return answer(message, context)
        if is_simulated(context):
            if message.metadata.message_type == SIZE:
                return answer_size(message, context)
            return _answer_completed(message, context)
        _forget_what_is_loaded("by Flower")
        reply = device_mod(message, context, _answer)
        _forget_what_is_loaded("by the study")
        return reply


@cache
def _forget_what_is_loaded(_: str) -> None:
    """Let the garbage collector pass over what is loaded already, once in a process.

    A device's process answers one message. Flower has filled it with objects that live as long as
    it does, and a study's import is enough to have all of them looked at. So is the process's end,
    which would look at torch's as well.
    """
    gc.freeze()


def _answer_completed(message: Message, given: Context) -> Message:
    """Answer with a completed run config; Flower permits no other one in the context itself."""
    run_config = complete(given.run_config, supernodes_of(given))
    if run_config is given.run_config:
        return _answer(message, given)
    context = copy(given)
    context.run_config = run_config
    reply = _answer(message, context)
    given.state = context.state
    return reply


def _answer(message: Message, context: Context) -> Message:
    app: ClientApp = study_module(str(context.run_config["study"]), "client_app").app
    # A product's last bits depend on the number of threads; every runtime uses one.
    with one_blas_thread():
        return app(message, context)


client_app = StudyClientApp()
server_app = ServerApp()


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    engine = engine_of(grid)
    if engine != "local":
        from trellis.apps.common.flower_log import log_through_flower  # no device needs it

        log_through_flower()
    complete_for(grid, context, simulated=engine != "deployment")
    app: ServerApp = study_module(str(context.run_config["study"]), "server_app").app
    # In one process this holds for the clients as well, and spares them setting it every message.
    with one_blas_thread():
        app(grid, context)
