"""A client's answer to enrolment: who it is, or why it does not take part."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import ConfigRecord, Message, RecordDict

from apps.common.node import Node
from privacy.accounting.budget import PrivacyRefused


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
            **places,
        }
    )
    return Message(RecordDict({"client": who}), reply_to=message)


def refusal(message: Message, node: Node, reason: PrivacyRefused) -> Message:
    """Return that this device does not take part, and why."""
    who = ConfigRecord({"name": node.name, "refused": str(reason)})
    return Message(RecordDict({"client": who}), reply_to=message)
