"""Wraps every message on a device: checks the policy, limits the time, returns error codes only.

    client_app = ClientApp(mods=[device_mod])

Every message to a real device passes `device_mod`, a Flower mod, whatever its study. In this order:

1. the node config and the run's settings are read (whichever form they have, see `run_config`),
   and the owner's policy judges them (E1, E4);
2. the study answers, within the owner's bound on time;
3. whatever goes wrong becomes a code; the details go to the device's log, and nowhere else.

So no study can read data before the run is permitted, and none can tell more by failing than that
it failed. Messages to a simulated node pass as they are: its texts stay visible.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from trellis.apps.common.enrolment import refusal
from trellis.apps.common.node import Node, is_simulated
from trellis.apps.common.plugins import known
from trellis.apps.common.run_config import complete
from trellis.apps.common.settings import StudyConfig, config_class
from trellis.apps.common.tables import DataError
from trellis.privacy.device import log
from trellis.privacy.device.codes import DeviceError, PrivacyRefused
from trellis.privacy.device.policy import Policy, Wish
from trellis.privacy.device.policy_file import OWNER_KEYS, whole_config
from trellis.privacy.device.state import check_writable, keep_policy
from trellis.privacy.device.work import TimeIsUp, time_limit
from trellis.strategies.core.exchange import content_bytes

Answer = Callable[[Message, Context], Message]

ENROL = "query.enrol"

_logger = logging.getLogger("trellis.device")


def device_mod(message: Message, context: Context, call_next: Answer) -> Message:
    """Have a device answer one message; what it raises is a `DeviceError` without any details.

    Raises
    ------
    DeviceError
        Whatever went wrong. Exceptions that are no `Exception`, an interrupt for one, pass.
    """
    if is_simulated(context):
        return call_next(message, context)
    metadata = message.metadata
    occasion = log.Occasion(
        run=str(context.run_id),
        study=str(context.run_config.get("study", "")),
        kind=metadata.message_type,
        message=metadata.message_id,
        server=str(context.node_config.get("server-name", "")),
    )
    task = _Task(message, context)
    with log.working_on(occasion):
        try:
            return task.run(call_next)
        except PrivacyRefused as reason:
            code = "E4"
            log.note(task.folder(), "refused", code=code, reason=str(reason))
        except (Exception, TimeIsUp) as error:
            code = task.code(error)
            trace = "".join(traceback.format_exception(error))
            log.note(task.folder(), "error", code=code, error=repr(error), trace=trace)
    _logger.warning("device error %s in run %s, %s", code, occasion.run, occasion.kind)
    # Out here, where no other exception is being handled: nothing hangs on to this one.
    raise DeviceError(code)


class _Task:
    """One message on one device, and how far it came."""

    def __init__(self, message: Message, context: Context) -> None:
        self.message, self.given = message, context
        self.context: Context | None = None
        self.config: StudyConfig | None = None

    def run(self, answer: Answer) -> Message:
        """Judge, answer, and enter an enrolment in the log."""
        given = self.given
        context = Context(
            given.run_id,
            given.node_id,
            whole_config(given.node_config),
            given.state,
            complete(given.run_config),
            given.series_id,
        )
        policy = Policy.from_node_config(context.node_config)
        node = Node.of(context)
        if node.state_path is not None:
            mine = {k: v for k, v in context.node_config.items() if k in OWNER_KEYS}
            keep_policy(node.state_path, mine)
        kind = self.message.metadata.message_type
        run_config = context.run_config
        settings = config_class(str(run_config["study"]))
        try:
            # First: already to check a setting, a study may make as many things as it says.
            policy.permit_numbers(whole_numbers(settings, run_config))
            config = settings.from_run_config(run_config)
            policy.permit_run(wish(config))
            policy.permit_size(content_bytes(self.message.content))
            if kind == ENROL and config.privacy != "none":
                check_writable(node.state_path)
        except PrivacyRefused as reason:
            if kind != ENROL:
                raise
            return refusal(self.message, node, reason)
        self.context, self.config = context, config
        with time_limit(policy.most_seconds):
            reply = answer(self.message, context)
        given.state = context.state
        if kind == ENROL and "refused" not in reply.content.config_records["client"]:
            others = sorted(set(reply.content) - {"client"})  # of a first round that came with it
            log.note(node.state_path, "enrolled", told=[*sorted(reply.content["client"]), *others])
        return reply

    def code(self, error: BaseException) -> str:
        """Return the code of a failure, by where it happened."""
        if self.config is None:
            return "E1" if isinstance(error, ValueError | TypeError | KeyError) else "E9"
        kind = self.message.metadata.message_type
        if kind.startswith("query.secagg"):
            return "E5"  # keys and shares: the data has no part in these
        if self.config.privacy == "none" and isinstance(error, DataError | OSError):
            return "E2"
        return "E3"

    def folder(self) -> Path | None:
        """Return where the log is; None where the node config is too wrong to say."""
        try:
            return Node.of(self.context or self.given).state_path
        except Exception:
            state = self.given.node_config.get("state-path")
            return Path(str(state)) if state else None


def whole_numbers(settings: type[StudyConfig], run_config: Mapping[str, Any]) -> dict[str, float]:
    """Return what a run config says for settings that are whole numbers, before it is parsed."""
    found = {}
    for field in fields(settings):
        key = field.name.rstrip("_").replace("_", "-")
        value = run_config.get(f"{settings.study}.{key}")
        if field.type == "int" and isinstance(value, str | int | float):
            try:
                found[key] = float(value)
            except ValueError:
                continue  # parsing it gives the error that names it
            except OverflowError:
                found[key] = math.inf
    return found


def wish(config: StudyConfig) -> Wish:
    """Return what a run asks of a device."""
    settings = config.settings()
    named = {key: str(settings[key]) for key in config.plugin_settings}
    return Wish(
        study=config.study,
        method=config.method,
        privacy=config.privacy,
        names={k: name for k, name in named.items() if known(config.plugin_settings[k], name)},
        clear_updates=config.clear_updates,
        labels=config.tells_labels,
        numbers={key: value for key, value in settings.items() if type(value) is int},
    )
