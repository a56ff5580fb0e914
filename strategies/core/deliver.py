"""The last message of a run: every device is given its result.

Two kinds of runs, one message. With ``personal = "device"`` every client is sent the public result
and makes its own from it; simulated clients send theirs back, to be evaluated (``take``). In all
other runs the server has made the result, and each device is sent its own part of it; simulated
clients are sent nothing then: they are in the server's hands anyway.

A device's reply says nothing, what it keeps stays with it (`apps.common.private.personal`). A
client that was left out, or that refused to take part, is sent nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from .base import StudyStrategy
from .exchange import exchange

log = logging.getLogger("trellis.strategy")

PERSONAL = "query.personal"

Take = Callable[[int, RecordDict], None]


def deliver(
    strategy: StudyStrategy[Any],
    grid: Grid,
    content: RecordDict | Callable[[int], RecordDict],
    take: Take | None = None,
    *,
    devices: bool = True,
) -> None:
    """Send every client that is not left out its result.

    Parameters
    ----------
    content : one for all, or what each client is sent
    take : gets a simulated client's own result; what it raises rejects it. None asks devices only
    devices : False asks simulated clients only
    """
    asked = {
        client: Message(
            RecordDict(dict(content(client) if callable(content) else content)),
            known.node_id,
            PERSONAL,
            group_id="personal",
        )
        for client, known in enumerate(strategy.clients)
        if not known.left_out and (take is not None if known.simulated else devices)
    }
    if not asked:
        return
    answers = exchange(grid, asked, strategy.plan.timeout)
    for client in sorted(answers.content):
        if take is None or not strategy.clients[client].simulated:
            continue
        try:
            take(client, answers.content[client])
        except Exception as error:  # whatever a malicious reply provokes
            answers.failures[client] = f"its own result was rejected: {error}"
    for client, reason in sorted(answers.failures.items()):
        name = strategy.clients[client].name
        log.warning("client %s did not get its result: %s", name, reason)
        strategy.undelivered.append(f"{name}: {reason}")
    strategy.progress.bytes_up += answers.bytes_up
    strategy.progress.bytes_down += answers.bytes_down
