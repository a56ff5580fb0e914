"""The last message of a run: every client is sent the public result, to make its own from it.

A device's reply says nothing, what it makes stays with it (`apps.common.private.personal`).
Simulated clients send theirs back, to be evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from .base import StudyStrategy
from .exchange import exchange

PERSONAL = "query.personal"


def deliver(
    strategy: StudyStrategy[Any],
    grid: Grid,
    public: RecordDict,
    take: Callable[[int, RecordDict], None],
) -> None:
    """Send ``public`` to every client that is not left out.

    ``take`` gets a simulated client's own result; what it raises rejects it.
    """
    asked = {
        client: Message(RecordDict(dict(public)), known.node_id, PERSONAL, group_id="personal")
        for client, known in enumerate(strategy.clients)
        if not known.left_out
    }
    answers = exchange(grid, asked, strategy.plan.timeout)
    for client in sorted(answers.content):
        if not strategy.clients[client].simulated:
            continue
        try:
            take(client, answers.content[client])
        except Exception as error:  # whatever a malicious reply provokes
            answers.failures[client] = f"its own result was rejected: {error}"
    strategy.note_failures(len(strategy.progress.rows), answers)
    strategy.progress.bytes_up += answers.bytes_up
    strategy.progress.bytes_down += answers.bytes_down
