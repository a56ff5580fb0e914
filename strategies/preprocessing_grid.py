"""Preprocessing as middleware: arrays that clients map their records by go with every message.

Offsets and scales of features, for instance: found once, before the first round, the same for all
clients. The strategy does not know. A client reads the record ``preprocessing`` before it reads its
records (`trellis.apps.common.own_data`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from .core import wire
from .grid_wrapper import GridWrapper

RECORD = "preprocessing"


class PreprocessingGrid(GridWrapper):
    """A Grid that adds the record ``preprocessing`` to ``train`` and ``evaluate`` messages.

    Parameters
    ----------
    grid : the clients, or middleware before them
    arrays : what is added, by name
    """

    def __init__(self, grid: Grid, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(grid)
        self.record = wire.record(dict(arrays))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages with the record; return their replies."""
        return self.grid.send_and_receive(self._completed(messages), timeout=timeout)

    def _completed(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if not message.metadata.message_type.startswith("query"):
                message.content[RECORD] = self.record
            yield message
