"""Which runtime a ServerApp is in, and how large a simulated federation is.

The SuperNodes of Flower's simulation register while the ServerApp starts already, so that to count
them may be too early. Each has the number of all in its node config, so one of them is asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from trellis.apps.common.run_config import by_study, complete, left_open
from trellis.apps.common.settings import ConfigError, config_class
from trellis.strategies.core.enrolment import StudyError

SIZE = "query.supernodes"
_ENGINES = {"LocalGrid": "local", "InMemoryGrid": "flower"}
_ONLINE_WITHIN = 60.0  # seconds for the first SuperNode to register
_ANSWER_WITHIN = 600.0  # seconds for the runtime to start its workers and one of them to answer
_PAUSE = 0.05

log = logging.getLogger("trellis.run")


def engine_of(grid: Grid) -> str:
    """Return ``local``, ``flower`` (its simulation runtime) or ``deployment``."""
    return _ENGINES.get(type(grid).__name__, "deployment")


def supernodes_of(context: Context) -> int:
    """Return how many SuperNodes a simulated one is one of; 0 if its node config does not say."""
    value = context.node_config.get("num-partitions", 0)
    return value if isinstance(value, int) else 0


def answer_size(message: Message, context: Context) -> Message:
    """Answer how many SuperNodes there are."""
    found = ConfigRecord({"supernodes": supernodes_of(context)})
    return Message(RecordDict({"federation": found}), reply_to=message)


def complete_for(grid: Grid, context: Context, *, simulated: bool) -> None:
    """Complete a ServerApp's run config (`complete`), and log what was chosen for whom.

    Raises
    ------
    ConfigError
        If the number of clients is open on devices, or there are fewer SuperNodes than files.
    StudyError
        If no SuperNode can tell how many there are.
    """
    found = by_study(context.run_config)
    study, supernodes = str(found["study"]), 0
    if left_open(found):
        if simulated:
            supernodes = _ask_size(grid)
        elif not found[f"{study}.clients"]:
            here = len(list(grid.get_node_ids()))
            raise ConfigError(
                f"clients=0: on devices, set clients to how many take part; {here} SuperNodes are "
                "online now"
            )
    context.run_config = complete(found, supernodes)
    if supernodes:
        _log_size(context.run_config, study, supernodes, given=bool(found[f"{study}.clients"]))


def _log_size(run_config: Mapping[str, Any], study: str, supernodes: int, *, given: bool) -> None:
    clients, data = int(run_config[f"{study}.clients"]), run_config.get("data")
    if data and clients > supernodes and not given:
        raise ConfigError(
            f"data={data!r}: {clients} files, one per client, and {supernodes} SuperNodes; add "
            f"--federation-config 'num-supernodes={clients}', or set clients"
        )
    usual, hint = config_class(study)().clients, ""
    if not data and not given and clients != usual:
        hint = f" (its built-in example has {usual}: --federation-config 'num-supernodes={usual}')"
    online = "1 SuperNode is" if supernodes == 1 else f"{supernodes} SuperNodes are"
    log.info(
        "%s online; %s runs with %d client%s%s",
        *(online, study, clients, "s" * (clients != 1), hint),
    )


def _ask_size(grid: Grid) -> int:
    """Return how many SuperNodes a simulation has, by the word of the first that is there."""
    until = time.monotonic() + _ONLINE_WITHIN
    while not (nodes := sorted(grid.get_node_ids())):
        if time.monotonic() > until:
            raise StudyError(f"no SuperNode is online after {_ONLINE_WITHIN:.0f} s")
        time.sleep(_PAUSE)
    question = Message(RecordDict(), nodes[0], SIZE)
    for reply in grid.send_and_receive([question], timeout=_ANSWER_WITHIN):
        if reply.has_error():
            raise StudyError(f"a SuperNode cannot run the ClientApp: {reply.error.reason}")
        return int(reply.content.config_records["federation"]["supernodes"])  # type: ignore[arg-type]
    raise StudyError(f"no SuperNode answered within {_ANSWER_WITHIN:.0f} s")
