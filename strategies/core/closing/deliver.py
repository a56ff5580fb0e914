"""The last message of a run: every device is given its result.

Two kinds of runs, one message. With ``personal = "device"`` every client is sent the public result
and makes its own from it; simulated clients send theirs back, to be evaluated (``take``). In all
other runs the server has made the result, and each device is sent its own part of it; simulated
clients are sent nothing then, unless they are to score it: they are in the server's hands anyway.

Where records were held out, and clients may tell how the result does on them (``plan.scores``), the
message is Flower's ``evaluate``, and the reply has their scores (`evaluation`). Otherwise it is
``query.personal``: a device's reply says nothing, what it keeps stays with it
(`apps.common.private.personal`). A client that was left out, or that refused to take part, is sent
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ..exchange import exchange
from .evaluation import EVALUATE, read_scores

if TYPE_CHECKING:
    from trellis.strategies.rounds import Rounds


log = logging.getLogger("trellis.strategy")

PERSONAL = "query.personal"

Take = Callable[[int, RecordDict], None]


def deliver(
    strategy: Rounds,
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
            EVALUATE if strategy.may_score(client) else PERSONAL,
            group_id="personal",
        )
        for client, known in enumerate(strategy.clients)
        if not known.left_out and _is_asked(strategy, client, take is not None, devices)
    }
    if not asked:
        return
    strategy.evaluated |= {client for client in asked if strategy.may_score(client)}
    answers = exchange(grid, asked, strategy.plan.timeout)
    for client in sorted(answers.content):
        try:
            if strategy.may_score(client):
                _keep_scores(strategy, client, answers.content[client])
            if take is not None and strategy.clients[client].simulated:
                take(client, answers.content[client])
        except Exception as error:  # whatever a malicious reply provokes
            answers.failures[client] = f"its own result was rejected: {error}"
    for client, reason in sorted(answers.failures.items()):
        name = strategy.clients[client].name
        log.warning("client %s did not get its result: %s", name, reason)
        strategy.undelivered.append(f"{name}: {reason}")
    strategy.progress.bytes_up += answers.bytes_up
    strategy.progress.bytes_down += answers.bytes_down


def _is_asked(strategy: Rounds, client: int, taken: bool, devices: bool) -> bool:
    """Return whether a client is sent its result now."""
    if not strategy.clients[client].simulated:
        return devices
    return taken or (strategy.may_score(client) and client not in strategy.evaluated)


def _keep_scores(strategy: Rounds, client: int, content: RecordDict) -> None:
    found = read_scores(content)
    if found is not None:
        strategy.scores[client] = found
