"""The client of cluster-admm: message in, message out.

Which function answers ``train`` and the last message, which brings the result, and what is added
to the noisy secure sums of the method ``moments``, is the method's (`methods`). Here are also
enrolment and the losses by which clusters are found.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.own_data import units
from trellis.apps.common.own_data.scaling import is_apart
from trellis.apps.common.private.personal import Personal, personal
from trellis.privacy.accounting.budget import PrivacyRefused
from trellis.privacy.secagg.client import register
from trellis.strategies.core import wire

from .config import ClusterAdmmConfig
from .data import cluster_of, server_of
from .local import memory, sent_array, sent_config
from .methods import METHODS
from .problem import mean_losses

app = ClientApp()


def settings_of(context: Context) -> ClusterAdmmConfig:
    """Return the run's settings."""
    return memory.run(context).config


METHODS.answer_train(app, settings_of)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is, of which server and cluster, and how much data it has."""
    run, client = memory.run(context), memory.client(context)
    node, samples = client.node, client.samples
    server = server_of(run.config, node, context)
    cluster = cluster_of(run.config, run.seed, node, context)
    told = run.config.units(is_apart(context.run_config)) == "told"
    moments = units.own_moments(client.columns) if told else ()
    places = {"server": server, "cluster": cluster} | ({"zeros": samples.zeros} if told else {})
    return introduction(message, node, len(samples.y), samples.columns, moments, **places)


@app.evaluate("losses")
def losses(message: Message, context: Context) -> Message:
    """Return this client's mean loss under each model, and over how many samples it is."""
    config = memory.run(context).config
    if not config.searches:
        raise PrivacyRefused(
            f"clusters={config.clusters!r} with method={config.method!r}: such a run finds no "
            "clusters, and losses have no noise"
        )
    client = memory.client(context).standardised(message)
    models = sent_array(message, "models", (None, client.samples.X.shape[1]))
    X, y = client.learning
    found = mean_losses(config.loss, models, X, y)
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": wire.record({"losses": found}), "metrics": metrics})
    return Message(content, reply_to=message)


summands = METHODS.in_sums("summands", settings_of)
register(app, summands)

# The last message: this client's model, made here or by the servers, stays on its device.
personal(app)(METHODS.own(settings_of))


def own_alone(message: Message, context: Context) -> Personal:
    """Return a model of this client's own, from its samples only."""
    # Late: no other message needs this.
    from .owner.result import by_itself

    config = memory.run(context).config
    client = memory.client(context).standardised(message)
    return by_itself(config.loss, client.samples, client.held, config.ridge)


def received_model(message: Message, context: Context) -> Personal:
    """Return the model of this client's cluster, which the servers made."""
    # Late: no other message needs this.
    from .owner.result import from_server

    config = memory.run(context).config
    client = memory.client(context).standardised(message)
    samples, held = client.samples, client.held
    w = sent_array(message, "model", (samples.X.shape[1],))
    place = int(wire.number(sent_config(message), "cluster"))
    return from_server(config.loss, np.array(w), place, samples, held, config.ridge)
