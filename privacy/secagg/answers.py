"""What a device answers to the actions of secure aggregation.

Keys and the state of one round live in ``context.state``, in memory on the device. Node config:
``signing-key`` (path of a private key) signs this device's key; ``trusted-keys`` (path of a table
of ``name public-key`` lines) refuses members that are not in it or not signed; ``fewest-clients``
is the smallest sum the device takes part in, 3 by default; ``fewest-share`` the smallest threshold,
as a share of the holders, two thirds by default; ``count-noise-of`` whose noise it counts on in
noisy sums (``nobody``, ``signed``, ``anyone``) and ``colluding`` how many of them at least it takes
for the server's, as a share.

Adversary, what is revealed and what is not covered: see `privacy.secagg.protocol`. ``clear``
records of `Summands` are sent as they are: the server reads them, client by client. How many values
were clipped to the declared range goes to the device's log (``trellis.device``) and nowhere else.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from .client import DIRECTORY, RECORD, VECTOR, Summands
from .errors import BadMessage, NoSuchSession
from .graph import FEWEST, SHARE
from .keys import joined
from .messages import Directory, Hello, M, Met, NoSession, Order, Question, Roll, parse, to_fields
from .protocol import Member, Policy
from .ring import layout_of, layout_size
from .signing import load_signing_key, load_trusted_keys
from .state import ClientState

log = logging.getLogger("trellis.device")


def keys(message: Message, context: Context) -> Message:
    """Enter a session: tell this client's key of it."""
    before = _load(context) if RECORD in context.state else None
    member, advert = Member.enter(_read(Hello, message), policy_of(context), before)
    return _answer(member, message, context, advert)


def meet(message: Message, context: Context) -> Message:
    """Meet the others before any order: who refuses them costs nobody a release."""
    member = Member(_load(context), policy_of(context))
    member.meet(_directory(message.content.get(DIRECTORY)))
    return _answer(member, message, context, Met(member.state.directory))


def masked(
    message: Message, context: Context, summands: Callable[[Message, Context], Summands]
) -> Message:
    """Return this client's summands, masked; with its first order it meets the others.

    Directory and order are accepted together or not at all: where either is refused, or no vector
    is sent, the client is as it was.
    """
    order = _read(Order, message)
    del message.content[RECORD]
    directory = message.content.pop(DIRECTORY, None)
    try:
        member = Member(_load(context), policy_of(context))
        if directory is not None:
            member.meet(_directory(directory))
        # Before anything is computed from data: a round that cannot be must cost nothing.
        told_alike = shared_hash(message.content, context.run_config)
        member.begin(order, told_alike)
    except NoSuchSession:
        # No refusal: the server is to make a new session, and nothing was looked at.
        return Message(_record(NoSession()), reply_to=message)
    mine = summands(message, context)
    clear, noise = dict(mine.clear), None
    if mine.noise is not None:
        size = layout_size(layout_of(mine.arrays))
        noise, told, terms = mine.noise(member.noisers, order.fraction_bits, size)
        member.bind(terms)
        clear |= dict(told)
    if reserved := {RECORD, VECTOR, DIRECTORY} & set(clear):
        raise ValueError(f"a clear record must not be called {' or '.join(sorted(reserved))}")
    vector, beside, clips = member.mask(mine.arrays, noise)
    if clips:
        log.warning("round %d: %d values clipped to the declared range", order.number, clips)
    reply = _answer(member, message, context, beside)
    reply.content[VECTOR] = ArrayRecord({"vector": Array(vector)})
    for name, record in clear.items():
        reply.content[name] = record
    return reply


def agree(message: Message, context: Context) -> Message:
    """Say who, by the server's word, has sent a masked vector."""
    member = Member(_load(context), policy_of(context))
    return _answer(member, message, context, member.agree(_read(Roll, message)))


def unmask(message: Message, context: Context) -> Message:
    """Return the shares that open the sum."""
    member = Member(_load(context), policy_of(context))
    return _answer(member, message, context, member.unmask(_read(Question, message)))


def shared_hash(content: RecordDict, run_config: Mapping[str, object] | None = None) -> bytes:
    """Return the hash (32 bytes) of a payload and of the run config.

    All of the payload: a record left out would be one that the server may choose for each client,
    and with it what the client adds to the sum. Names, types, shapes and bytes of arrays; names and
    values of the rest.
    """
    whole = hashlib.sha256(joined("trellis secagg 2", "payload"))
    whole.update(joined("run config", repr(sorted((run_config or {}).items()))))
    for name in sorted(content):
        record = content[name]
        whole.update(joined(type(record).__name__, name, len(record)))
        for key in sorted(record):
            value = record[key]
            if isinstance(value, Array):
                whole.update(joined(key, value.dtype, value.stype, repr(tuple(value.shape))))
                whole.update(joined(len(value.data)))
                whole.update(value.data)
            else:
                whole.update(joined(key, type(value).__name__, repr(value)))
    return whole.digest()


def policy_of(context: Context) -> Policy:
    """Return what the device's node config insists on; the run config has no say."""
    config = context.node_config
    key, table = str(config.get("signing-key", "")), str(config.get("trusted-keys", ""))
    return Policy(
        load_signing_key(key) if key else None,
        load_trusted_keys(table) if table else None,
        int(config.get("fewest-clients", FEWEST)),
        float(config.get("fewest-share", SHARE)),
        float(config.get("colluding", 0.0)),
        str(config.get("count-noise-of", "signed")),
    )


def _directory(record: object) -> Directory:
    if not isinstance(record, ConfigRecord):
        raise BadMessage(f"{DIRECTORY} is no record of settings")
    return parse(Directory, record)


def _read(kind: type[M], message: Message) -> M:
    record = message.content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise BadMessage(f"the message carries no {RECORD} record")
    return parse(kind, record)


def _load(context: Context) -> ClientState:
    record = context.state.get(RECORD)
    if not isinstance(record, ConfigRecord) or not isinstance(record.get("state"), bytes):
        raise NoSuchSession("this client is in no session of secure aggregation; restarted?")
    return ClientState.from_bytes(bytes(record["state"]))  # type: ignore[arg-type]


def _answer(member: Member, asked: Message, context: Context, answer: object) -> Message:
    """Keep the state and return the reply; nothing is kept where a stage has raised."""
    context.state[RECORD] = ConfigRecord({"state": member.state.to_bytes()})
    return Message(_record(answer), reply_to=asked)


def _record(answer: object) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(to_fields(answer))})
