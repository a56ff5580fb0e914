"""The last message of a run: what a device is left with, and how good that is.

    @personal(app)
    def compute(message, context) -> Personal: ...

answers ``query.personal`` and ``evaluate``. With ``personal = "device"`` a client makes a result of
its own from its raw data and the public one that the message brings; otherwise the server has made
it, and the device stores what it is sent, checked. Either way it is written to the owner's state
folder with a page, and scored on records that were held out. The reply says that the message came,
nothing else, also where something failed (the reason is in the device's log). So it needs no noise:
whoever sees all that is sent learns no more of the raw data than the public result tells (joint
differential privacy, by the billboard lemma [HHRRW]_). In a simulation the reply carries the
results, gathered to be evaluated; a run and its report say so.

``evaluate`` asks for the scores as well. They are a function of the raw records, so a device tells
them only where nothing is claimed anyway: with ``privacy = "none"``, and where its owner allows
what is sent in the clear. Under any other privacy, whatever the server asks, they stay with the
owner; studies with noisy sums tell a score through one of these, counted. A simulated client tells
its scores in every mode.

A server may send this at any time, as often as it likes, with anything in it: nothing that was kept
is written over, and the disk it can fill is bounded (`kept`).

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

from trellis.apps.common.evaluation.measures import Scores
from trellis.apps.common.node import Node
from trellis.apps.common.settings import config_class
from trellis.privacy.device import log
from trellis.privacy.device.policy import Policy
from trellis.privacy.device.work import TimeIsUp
from trellis.strategies.core import wire
from trellis.strategies.core.closing.evaluation import EVALUATE, score_records

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
    words : what was learned, in sentences
    model : what ``trellis device predict`` needs to use it: ``kind``, which array, and more
    scores : computes the scores of held-out records, on a device only; None where none are held out
    made_here : whether it was made on this device, and not by the server
    """

    arrays: Mapping[str, NDArray[Any]]
    graph: NDArray[np.float64] | None = None
    variables: Sequence[str] = ()
    summary: Mapping[str, float | str] = field(default_factory=dict)
    words: Sequence[str] = ()
    model: Mapping[str, Any] = field(default_factory=dict)
    scores: Callable[[], Scores] | None = None
    made_here: bool = True


Compute = Callable[[Message, Context], Personal]


def personal(app: ClientApp) -> Callable[[Compute], Compute]:
    """Let a function make a client's own result where the server sends the public one."""

    def register(compute: Compute) -> Compute:
        @app.evaluate()
        @app.query(PERSONAL)
        def answer(message: Message, context: Context) -> Message:
            node = Node.of(context)
            asked = message.metadata.message_type == EVALUATE
            if node.simulated:
                found = compute(message, context)
                # What the server has made it need not be sent back.
                content = gathered(found) if found.made_here else RecordDict()
                if asked and found.scores is not None:
                    _tell(content, found.scores())
                return Message(content, reply_to=message)
            content = RecordDict({PERSONAL: ConfigRecord({"came": True})})
            try:
                tells = asked and may_tell_scores(context)
                scores = keep(compute(message, context), node, context, told=tells)
                if tells and scores is not None:
                    _tell(content, scores)
            except (Exception, TimeIsUp) as error:
                # A failure may depend on the data: the reply is the same.
                trace = "".join(traceback.format_exception(error))
                log.note(node.state_path, "error", personal=True, error=repr(error), trace=trace)
            return Message(content, reply_to=message)

        return compute

    return register


def may_tell_scores(context: Context) -> bool:
    """Return whether a device tells how a result does on its held-out records."""
    privacy = (
        config_class(str(context.run_config["study"])).from_run_config(context.run_config).privacy
    )
    return privacy == "none" and Policy.from_node_config(context.node_config).clear_updates


def _tell(content: RecordDict, scores: Scores) -> None:
    if scores.count:
        for name, record in score_records(scores.table()).items():
            content[name] = record


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


def keep(found: Personal, node: Node, context: Context, *, told: bool = False) -> Scores | None:
    """Write a result to the device's state folder, for its owner; return its scores, if any.

    ``told`` is whether the server is told these.
    """
    # Late: no other message needs these.
    from trellis.apps.common.private.about import asked_by, spent
    from trellis.apps.common.private.files import documents, write_documents
    from trellis.apps.common.private.kept import FORMAT, free_place
    from trellis.apps.common.results import versions

    if node.state_path is None:
        raise ValueError("no folder for personal results; set state-path in --node-config")
    scores = _scored(found, node)
    about = {
        "format": FORMAT,
        **asked_by(node, context),
        "made": "here" if found.made_here else "by the server",
        "model": dict(found.model),
        "variables": [str(name) for name in found.variables],
        "words": list(found.words),
        "summary": {key: _plain(value) for key, value in found.summary.items()},
        "scores": _as_kept(found, scores),
        "told": told,
        "spent": spent(node, context),
        "versions": versions(),
    }
    name = found.model.get("coefficients")
    coefficients = None if name is None else found.arrays[str(name)]
    files = documents(about, found.arrays, found.graph, coefficients)
    most = 1e6 * Policy.from_node_config(context.node_config).most_megabytes
    size = sum(len(content) for content in files.values())
    folder = free_place(node.state_path, str(context.run_id), size, most)
    write_documents(folder, files)
    log.note(node.state_path, "result", kept_in=str(folder), made=about["made"])
    return scores


def _scored(found: Personal, node: Node) -> Scores | None:
    """Return the scores; one that fails must not cost the owner the result."""
    try:
        return None if found.scores is None else found.scores()
    except (Exception, TimeIsUp) as error:
        trace = "".join(traceback.format_exception(error))
        log.note(node.state_path, "error", scores=True, error=repr(error), trace=trace)
        return None


def _as_kept(found: Personal, scores: Scores | None) -> dict[str, Any] | None:
    if found.scores is None:
        return None
    if scores is None:
        return {"failed": True}
    return {**scores.as_record(), "words": scores.in_words()}


def _plain(value: float | str) -> float | str:
    """Return a value of the summary as JSON has it."""
    return value if isinstance(value, str) or math.isfinite(value) else str(value)
