"""A client's answer to enrolment: who it is, or why it does not take part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from apps.common.node import Node
from privacy.device import log
from privacy.device.codes import REFUSED, PrivacyRefused

Answer = Callable[[Message, Context], Message]


def enrolment(app: ClientApp) -> Callable[[Answer], Answer]:
    """Let a function answer ``query.enrol``; what the owner does not allow becomes a refusal."""

    def register(introduce: Answer) -> Answer:
        @app.query("enrol")
        def enrol(message: Message, context: Context) -> Message:
            try:
                return introduce(message, context)
            except PrivacyRefused as reason:
                return refusal(message, Node.of(context), reason)

        return introduce

    return register


def introduction(
    message: Message, node: Node, count: int, variables: Sequence[str], **places: int
) -> Message:
    """Return name, order, number of records and the variables' names; ``places`` as server=3."""
    who = ConfigRecord(
        {
            "name": node.name,
            "partition": node.partition,
            "count": count,
            "variables": list(variables),
            "synthetic": node.data_path is None,
            "simulated": node.simulated,
            **places,
        }
    )
    return Message(RecordDict({"client": who}), reply_to=message)


def refusal(message: Message, node: Node, reason: PrivacyRefused) -> Message:
    """Return that this client does not take part; why, a device tells its owner only."""
    text = str(reason)
    if not node.simulated:
        log.note(node.state_path, "refused", reason=text)
        text = REFUSED
    who = ConfigRecord({"name": node.name, "refused": text})
    return Message(RecordDict({"client": who}), reply_to=message)
