"""A client's answer to enrolment: who it is, or why it does not take part.

Where the message holds the first round's question as well (`strategies.core.enrolment`), the answer
to that stands beside it, as the study would give it in the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.common.node import Node, is_simulated
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.privacy.device import log
from trellis.privacy.device.codes import REFUSED, PrivacyRefused
from trellis.strategies.core.wire import MOMENTS

Answer = Callable[[Message, Context], Message]


def enrolment(app: ClientApp, opening: Answer | None = None) -> Callable[[Answer], Answer]:
    """Let a function answer ``query.enrol``; what the owner does not allow becomes a refusal.

    ``opening`` answers the first round's question, where the message holds one.
    """

    def register(introduce: Answer) -> Answer:
        @app.query("enrol")
        def enrol(message: Message, context: Context) -> Message:
            try:
                reply = introduce(message, context)
                if opening is not None and len(message.content):
                    _add_first_answer(reply, opening, message, context)
                return reply
            except PrivacyRefused as reason:
                return refusal(message, Node.of(context), reason)
            except (DataError, ConfigError) as error:
                if not is_simulated(context):
                    raise  # of which a device's guard tells a code, and nothing else
                return unusable(message, context, error)

        return introduce

    return register


def _add_first_answer(reply: Message, opening: Answer, message: Message, context: Context) -> None:
    try:
        first = opening(message, context).content
    except PrivacyRefused:
        raise
    except Exception:
        # Who it is stands. The round asks again, and what goes wrong then is told as ever.
        return
    for name, record in first.items():
        reply.content[name] = record


def introduction(
    message: Message,
    node: Node,
    count: int,
    variables: Sequence[str],
    moments: Sequence[Sequence[float]] = (),
    **places: int,
) -> Message:
    """Return name, order, number of records and the variables' names; ``places`` as server=3.

    ``moments`` are of its columns (`apps.common.own_data.units`), where a run asks for them.
    """
    told = {f"moments-{name}": list(part) for name, part in zip(MOMENTS, moments, strict=False)}
    who = ConfigRecord(
        {
            "name": node.name,
            "partition": node.partition,
            "count": count,
            "variables": list(variables),
            "synthetic": node.data_path is None,
            "simulated": node.simulated,
            **places,
            **told,
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


def unusable(message: Message, context: Context, error: Exception) -> Message:
    """Return why a simulated client's data cannot be used, and whose it is.

    An answer, no failure: a runtime would add its trace and leave out the client's name.
    """
    try:
        name = Node.of(context).name
    except DataError:  # there is no file for it
        name = f"client {context.node_config.get('partition-id')}"
    who = ConfigRecord({"name": name, "unusable": str(error)})
    return Message(RecordDict({"client": who}), reply_to=message)
