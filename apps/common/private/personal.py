"""What stays on the device: results of a client's own, from its raw data and the public result.

    @personal(app)
    def compute(message, context) -> Personal: ...

answers ``query.personal``. Nothing computed here leaves a device: it is written to the owner's
state folder, and the reply says that the message came, nothing else, also where the computation
failed (the reason is in the device's log). So it needs no noise: whoever sees all that is sent
learns no more of the raw data than the public result tells (joint differential privacy, by the
billboard lemma [HHRRW]_). In a simulation the reply carries the results, gathered to be evaluated;
a run and its report say so.

Not covered: how long a device took to answer; who reads its state folder.

.. [HHRRW] J. Hsu, Z. Huang, A. Roth, T. Roughgarden, Z. S. Wu, Private matchings and allocations,
   STOC 2014, Lemma 2.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from apps.common.node import Node
from privacy.device import log
from privacy.device.work import TimeIsUp
from strategies.core import wire

PERSONAL = "personal"

_logger = logging.getLogger("trellis.device")


@dataclass(frozen=True)
class Personal:
    """A client's own result.

    Attributes
    ----------
    arrays : by name, as they are kept in ``result.npz``
    graph : (p,) edge weights in ``numpy.triu_indices(d, 1)`` order, for GraphML, csv and the page;
        None where the result is no graph
    variables : names of the d nodes, or of a model's features
    summary : a few numbers and words for the owner
    """

    arrays: Mapping[str, NDArray[Any]]
    graph: NDArray[np.float64] | None = None
    variables: Sequence[str] = ()
    summary: Mapping[str, float | str] = field(default_factory=dict)


Compute = Callable[[Message, Context], Personal]


def personal(app: ClientApp) -> Callable[[Compute], Compute]:
    """Let a function make a client's own result where the server sends the public one."""

    def register(compute: Compute) -> Compute:
        @app.query(PERSONAL)
        def answer(message: Message, context: Context) -> Message:
            node = Node.of(context)
            if node.simulated:
                return Message(gathered(compute(message, context)), reply_to=message)
            try:
                keep(compute(message, context), node, context)
            except (Exception, TimeIsUp) as error:
                # A failure may depend on the data: the reply is the same.
                trace = "".join(traceback.format_exception(error))
                log.note(node.state_path, "error", personal=True, error=repr(error), trace=trace)
            came = RecordDict({PERSONAL: ConfigRecord({"came": True})})
            return Message(came, reply_to=message)

        return compute

    return register


def gathered(found: Personal) -> RecordDict:
    """Return a result as the reply of a simulated client."""
    numbers = {
        key: float(value)
        for key, value in found.summary.items()
        if not isinstance(value, str) and math.isfinite(value)
    }
    content = RecordDict({"arrays": wire.record(dict(found.arrays))})
    if numbers:
        content["summary"] = MetricRecord(dict(numbers))
    return content


def keep(found: Personal, node: Node, context: Context) -> None:
    """Write a result to the device's state folder, for its owner."""
    from apps.common.private.files import write_files  # here: for this message only

    if node.state_path is None:
        raise ValueError("no folder for personal results; set state-path in --node-config")
    folder = node.state_path / "results" / str(context.run_id)
    study = str(context.run_config.get("study", ""))
    write_files(folder, study, node.name, found.arrays, found.graph, found.variables, found.summary)
    log.note(node.state_path, "result", kept_in=str(folder))
