"""Secure aggregation in a Flower ClientApp: one call registers the four actions.

    def summands(message: Message, context: Context) -> Summands:
        ...                                 # what `train` would compute from the same content
        return Summands({"gradient": g})

    register(app, summands)

The state of one round lives in ``context.state``, in memory on the device. Node config:
``signing-key`` (path of a private key) signs this device's keys; ``trusted-keys`` (path of a table
of ``name public-key`` lines) refuses peers that are not in it or not signed; ``fewest-clients`` is
the smallest neighbourhood the device takes part in, 3 by default.

Adversary, what is revealed and what is not covered: see `privacy.secagg.protocol`. ``clear``
records of `Summands` are sent as they are: the server reads them, client by client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from .errors import BadMessage, Refused
from .messages import Delivery, Directory, Hello, M, Question, layout_fields, parse, to_fields
from .protocol import FEWEST, ClientRound, Policy
from .ring import Reals
from .signing import load_signing_key, load_trusted_keys
from .state import ClientState

KEYS, SHARES, MASKED, UNMASK = "secagg_keys", "secagg_shares", "secagg_masked", "secagg_unmask"
RECORD, VECTOR = "secagg", "masked"


@dataclass(frozen=True)
class Summands:
    """What one client contributes.

    Attributes
    ----------
    arrays : float64 arrays by name; the server gets their sums over the clients only
    clear : records that the server reads in the clear, such as privacy events
    """

    arrays: Mapping[str, Reals]
    clear: RecordDict = field(default_factory=RecordDict)


def register(app: ClientApp, summands: Callable[[Message, Context], Summands]) -> None:
    """Let ``app`` take part in secure sums of what ``summands`` returns.

    ``summands`` gets the message with the content that the strategy sent, nothing else in it.
    """

    @app.query(KEYS)
    def keys(message: Message, context: Context) -> Message:
        before = _load(context) if RECORD in context.state else None
        hello = _read(Hello, message)
        taking_part, advert = ClientRound.begin(hello, policy_of(context), before)
        return _answer(taking_part, message, context, advert)

    @app.query(SHARES)
    def shares(message: Message, context: Context) -> Message:
        taking_part = ClientRound(_load(context), policy_of(context))
        sealed = taking_part.share(_read(Directory, message))
        return _answer(taking_part, message, context, sealed)

    @app.train(MASKED)
    def masked(message: Message, context: Context) -> Message:
        taking_part = ClientRound(_load(context), policy_of(context))
        # Before anything is computed from data: a round that cannot end should cost nothing.
        taking_part.deliver(_read(Delivery, message))
        del message.content[RECORD]
        mine = summands(message, context)
        if reserved := {RECORD, VECTOR} & set(mine.clear):
            raise ValueError(f"a clear record must not be called {' or '.join(sorted(reserved))}")
        vector, layout = taking_part.mask(mine.arrays)
        reply = _answer(taking_part, message, context, layout_fields(layout))
        reply.content[VECTOR] = ArrayRecord({"vector": Array(vector)})
        for name, record in mine.clear.items():
            reply.content[name] = record
        return reply

    @app.query(UNMASK)
    def unmask(message: Message, context: Context) -> Message:
        taking_part = ClientRound(_load(context), policy_of(context))
        given = taking_part.unmask(_read(Question, message))
        return _answer(taking_part, message, context, given)


def policy_of(context: Context) -> Policy:
    """Return what the device's node config insists on; the run config has no say."""
    config = context.node_config
    key, table = str(config.get("signing-key", "")), str(config.get("trusted-keys", ""))
    return Policy(
        load_signing_key(key) if key else None,
        load_trusted_keys(table) if table else None,
        int(config.get("fewest-clients", FEWEST)),
    )


def _read(kind: type[M], message: Message) -> M:
    record = message.content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise BadMessage(f"the message carries no {RECORD} record")
    return parse(kind, record)


def _load(context: Context) -> ClientState:
    record = context.state.get(RECORD)
    if not isinstance(record, ConfigRecord) or not isinstance(record.get("state"), bytes):
        raise Refused("this client is in no round of secure aggregation; was it restarted?")
    return ClientState.from_bytes(bytes(record["state"]))  # type: ignore[arg-type]


def _answer(taking_part: ClientRound, asked: Message, context: Context, answer: object) -> Message:
    """Keep the round's state and return the reply; nothing is kept where a stage has raised."""
    context.state[RECORD] = ConfigRecord({"state": taking_part.state.to_bytes()})
    return Message(RecordDict({RECORD: ConfigRecord(to_fields(answer))}), reply_to=asked)
