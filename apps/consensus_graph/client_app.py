"""The client of consensus-graph: message in, message out.

What answers is the method's (`methods`): ``train`` in the clear is in `local`, the noisy secure
sums of the private methods and the last message, which brings the result, in `private.device`. Here
is the rest of a ClientApp.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.afford import check_budget
from trellis.apps.common.private.personal import personal
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.secagg.client import register

from .data import client_table
from .local import settings_of, statistic_alone, statistic_of
from .methods import METHODS

app = ClientApp()


METHODS.answer_train(app, settings_of)


@app.train("statistic")
def train_statistic(message: Message, context: Context) -> Message:
    """Answer ``train.statistic``, of which there is one in a run of the method ``one-shot``."""
    config = settings_of(context)
    if METHODS.row(config.method, config.privacy).client != "local:statistic_alone":
        raise PrivacyRefused(f"method={config.method!r} sends no statistic")
    return statistic_alone(message, context)


@enrolment(app)
def enrol(message: Message, context: Context) -> Message:
    """Tell who this client is: name, number of signals, names of the variables.

    Where no score is made of held-out signals in a sum, those that are learned from count.
    """
    config = settings_of(context)
    node, seed = Node.of(context), seed_of(context)
    policy = Policy.from_node_config(context.node_config)
    policy.permit(config.privacy)
    table = client_table(config, seed, node)
    check_budget(config, node, policy)
    count = int(table.values.shape[0])
    if METHODS.row(config.method, config.privacy).client:
        # While the data is at hand: no later message needs to read it.
        count = statistic_of(config, context).count
    return introduction(message, node, count, table.columns)


summands = METHODS.in_sums("summands", settings_of)
score = METHODS.in_sums("score", settings_of)
register(app, summands, score)

# The last message: this client's own graph, made here or by the server, which stays on its device.
personal(app)(METHODS.own(settings_of))
