"""The few private parts of Flower that the in-process engine stands on, all in one place.

Flower is written to be run by its own runtimes, so a runtime of ours needs what has no public door:
the id of a message, the name in which messages are made, the content of a container, and a few
definitions. A change of Flower's inside shows here, and in the tests of `trellis.sim.grid`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeVar

from flwr.app import Message, Metadata, RecordDict
from flwr.app.message.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.server.utils.validator import validate_message
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = [
    "SUPERLINK_NODE_ID",
    "SYSTEM_MESSAGE_TYPE",
    "ErrorCode",
    "NodeInfo",
    "Run",
    "identity",
    "make_message",
    "set_message_id",
    "shallow_copy",
    "validate_message",
    "with_data",
    "with_parts",
]

_Thing = TypeVar("_Thing")


def set_message_id(metadata: Metadata, message_id: str) -> None:
    """Name a message, as Flower's grids do; apps must not, so there is no setter."""
    metadata.__dict__["_message_id"] = message_id


def shallow_copy(thing: _Thing) -> _Thing:
    """Return what ``copy.copy`` returns, in a quarter of its time."""
    result = object.__new__(type(thing))
    result.__dict__.update(thing.__dict__)
    return result


def with_parts(message: Message, metadata: Metadata, content: RecordDict | None) -> Message:
    """Return a message like ``message`` with other metadata and content."""
    result = shallow_copy(message)
    result.__dict__["_metadata"] = metadata
    result.__dict__["_content"] = content
    return result


def with_data(container: _Thing, data: Mapping[str, object]) -> _Thing:
    """Return a container like ``container`` that holds ``data``, which nobody else may hold."""
    # Flower's containers check each entry as it is set, for three microseconds each. These entries
    # come out of such a container; to check them again, in four copies a message, took a fifth of
    # the engine's time.
    result = shallow_copy(container)
    result.__dict__["_data"] = data
    return result


class _Identity:
    """Who makes messages in this process: `Message` asks Flower's TaskIdentity, a global.

    Runs may be nested, and run at once on several threads; the last to end leaves the identity as
    the first found it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run_ids: list[int] = []
        self._known: set[int] = set()
        self._before: tuple[int | None, int | None, int | None] = (None, None, None)

    def take(self, run_id: int) -> None:
        """Make messages in the name of this run's server."""
        with self._lock:
            if not self._run_ids:
                # The properties raise where nothing is set.
                self._before = (TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id)
            self._run_ids.append(run_id)
            self._known.add(run_id)
            self._set(run_id, SUPERLINK_NODE_ID, 1)

    def give_back(self, run_id: int) -> None:
        """Make messages in the name of whoever did so before."""
        with self._lock:
            self._run_ids.remove(run_id)
            if self._run_ids:
                self._set(self._run_ids[-1], SUPERLINK_NODE_ID, 1)
            else:
                self._set(*self._before)

    def adopt(self, metadata: Metadata, run_id: int) -> bool:
        """Readdress a message that took its run id from a run on another thread, if it did."""
        if metadata.run_id not in self._known:
            return False
        metadata.__dict__["_run_id"] = run_id
        return True

    @staticmethod
    def _set(run_id: int | None, node_id: int | None, task_id: int | None) -> None:
        values = {"_run_id": run_id, "_node_id": node_id, "_task_id": task_id}
        for name, value in values.items():
            setattr(TaskIdentity, name, value)


identity = _Identity()
