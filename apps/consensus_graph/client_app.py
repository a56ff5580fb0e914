"""The client of consensus-graph: message in, message out.

What answers ``train`` is the method's (`methods`), and in `local`. Here is the rest of a ClientApp:
enrolment, the noisy secure sums of the private methods (`private.device`), and the last message,
which brings the result.
"""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from trellis.apps.common.enrolment import enrolment, introduction
from trellis.apps.common.node import Node, seed_of
from trellis.apps.common.private.afford import check_budget
from trellis.apps.common.private.once import tell_once
from trellis.apps.common.private.personal import personal
from trellis.privacy.accounting.budget import Policy, PrivacyRefused
from trellis.privacy.secagg.client import Summands, register, weighted_summands

from .data import client_table
from .local import averaged_graph, settings_of, statistic_alone, statistic_of
from .methods import METHODS
from .private.device import own_graph, score_terms, statistic_terms

app = ClientApp()


METHODS.answer_train(app, settings_of)


@app.train("statistic")
def train_statistic(message: Message, context: Context) -> Message:
    """Answer ``train.statistic``, of which there is one in a run of the method ``one-shot``."""
    config = settings_of(context)
    if config.method != "one-shot":
        raise PrivacyRefused(f"method={config.method!r} sends no statistic")
    return statistic_alone(message, context)


def summands(message: Message, context: Context) -> Summands:
    """Return what this client adds to a secure sum: its private terms, or FedAvg's, weighted."""
    config = settings_of(context)
    if config.sums:
        return statistic_terms(message, context)
    if not config.masked:
        raise ValueError("the run asks for no secure sums")
    if "slope" not in message.content.array_records["arrays"]:
        # Sums of slopes over changing sets of clients would give single ones away.
        tell_once(context, "slope")
    return weighted_summands(averaged_graph(message, context))


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
    if not (config.sums or config.at_home):
        # While the data is at hand: no later message needs to read it.
        count = statistic_of(config, context).count
    return introduction(message, node, count, table.columns)


register(app, summands, score_terms)

# The last message: this client's own graph, made here or by the server, which stays on its device.
personal(app)(own_graph)
