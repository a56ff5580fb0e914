"""A device's part of the method ``moments``: its terms of the noisy sums, and its own model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from trellis.apps.cluster_admm.config import ClusterAdmmConfig
from trellis.apps.cluster_admm.local import Client, memory, sent_array, sent_config, slot
from trellis.apps.common.own_data import units
from trellis.apps.common.private.noisy_sum import noisy
from trellis.apps.common.private.personal import Personal
from trellis.privacy.accounting.budget import PrivacyRefused
from trellis.privacy.secagg.client import Summands
from trellis.strategies.cluster_admm.moments import MOMENTS, SCALES, SCORE, UNITS
from trellis.strategies.core import wire

from . import budget, scales, score
from .moments import SENSITIVITY, Question, moments

if TYPE_CHECKING:
    from trellis.apps.common.evaluation.measures import Scores

Array = NDArray[np.float64]

_RANGE = (1e-12, 1e12)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to the noisy sum that is asked for."""
    config, client = memory.run(context).config, memory.client(context)
    sent = sent_config(message)
    wanted, server_round = sent.get("sum"), int(wire.number(sent, "server-round", 0.0))
    # Before anything is released, also for a sum that needs no models.
    sent_array(message, "models", (config.task_count, None))
    if wanted == UNITS and config.units() == "noisy":
        columns = client.columns
        found = noisy(
            *(context, config, {units.COUNTS: units.sign_counts(columns)}),
            what=units.WHAT,
            sensitivity=units.sensitivity_of_counts(columns.shape[1]),
            ratio=budget.units_ratio(config),
            server_round=server_round,
        )
        return _counted(found, len(columns))
    client = client.standardised(message)
    models, cluster = _models(message, config, client), slot(context, client)
    X, y = client.learning
    if wanted == SCALES and config.find_clips:
        found = noisy(
            *(context, config, {"scales": scales.scale_counts(config.loss, X, y)}),
            what=budget.SCALES,
            sensitivity=scales.SENSITIVITY[config.loss],
            ratio=budget.scales_ratio(config),
            server_round=server_round,
        )
        return _counted(found, len(y))
    if wanted == SCORE and config.held_out:
        X, y = client.samples.X[client.held], client.samples.y[client.held]
        width = wire.number(sent, "width", *_RANGE)
        terms = score.score_terms(config.loss, X, y, models[cluster], width)
        found = noisy(
            *(context, config, {"score": terms}),
            what=budget.SCORES,
            sensitivity=score.SENSITIVITY[config.loss],
            ratio=budget.scoring_ratio(config),
            server_round=server_round,
        )
        return _counted(found, len(y))
    if wanted != MOMENTS:
        raise PrivacyRefused(f"{wanted!r}: not what such a run adds up")
    question = Question(
        models,
        wire.number(sent, "length", *_RANGE),
        wire.number(sent, "width", *_RANGE),
        wire.number(sent, "weight", 0.0, 1.0),
        sent.get("whole") is True,
    )
    found = noisy(
        *(context, config, moments(config.loss, X, y, cluster, question)),
        what=budget.TEACHES,
        sensitivity=SENSITIVITY,
        ratio=budget.teaching_ratio(config),
        server_round=server_round,
        releases=config.exchange_count,
    )
    return _counted(found, len(y))


def _counted(found: Summands, count: int) -> Summands:
    """Return the summands with the number of samples in them, which is public, in the clear."""
    return replace(found, clear=RecordDict({"metrics": MetricRecord({"num-examples": count})}))


def _models(message: Message, config: ClusterAdmmConfig, client: Client) -> Array:
    """Return the server's models (Q, d), checked."""
    return sent_array(message, "models", (config.task_count, client.samples.X.shape[1]))


def own(message: Message, context: Context) -> Personal:
    """Return this client's own model, from its raw samples and the private models."""
    # Late: no other message needs these.
    from trellis.apps.cluster_admm.owner.result import description, held_out_scores, in_words
    from trellis.apps.common.evaluation.measures import THIS
    from trellis.apps.server_graph.owner.result import raw_model

    from .own import own_model

    config = memory.run(context).config
    client = memory.client(context).standardised(message)
    samples, models = client.samples, _models(message, config, client)
    pulls, cluster = sent_array(message, "pulls", (len(models),)), slot(context, client)
    found = own_model(config.loss, *client.learning, models, pulls, cluster, config.ridge)

    def scores() -> Scores:
        compared = {THIS: found.model, "the cluster's model": models[found.cluster]}
        terms = samples, client.held, config.ridge
        return held_out_scores(config.loss, compared, *terms, own_units=config.units() == "noisy")

    choice = np.array([found.cluster, found.scale, found.pull])
    kept = {"model": found.model, "choice": choice, "cluster_model": models[found.cluster]}
    return Personal(
        kept | raw_model(found.model, samples.scaling),
        variables=samples.columns,
        summary={
            "cluster": float(found.cluster),
            "scale of the cluster's model": found.scale,
            "pull towards it": found.pull,
            "mean loss of samples left out": found.loss,
            "the same, learning alone": found.alone,
            "the same, the cluster's model as it is": found.cluster_loss,
        },
        words=in_words(
            config.loss, len(samples.columns), "your own, pulled towards that of your cluster"
        ),
        model=description(config.loss, samples.scaling),
        scores=scores if client.held.any() else None,
    )
