"""The ClientApp of a bridge: it brings one server's letters to another server's SuperLink.

A bridge is a SuperNode of the sender's host with ``bridge`` (the sender's number) and ``spool`` in
its node config. It has no data, takes part in no round, and reads nothing but the spool: sealed
letters, greetings and signs of life. The run it answers is the receiver's; of that run's config it
uses nothing.

Adversary: the receiver's server, which chooses every message. It can ask for letters to others;
they are sealed for those.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict

from trellis.strategies.network.spool import Spool

KEY, SPOOL = "bridge", "spool"
_KNOWN = {KEY, SPOOL, "name", "server-name"}
_LONGEST_WAIT = 30.0


class BridgeError(ValueError):
    """A node config or a question that a bridge cannot use."""


def answer(message: Message, context: Context) -> Message:
    """Answer one message to a bridge."""
    server, spool = _settings(context)
    kind = message.metadata.message_type
    if kind == "query.enrol":
        who: dict[str, str | int] = {"name": f"bridge-of-server-{server}", KEY: server}
        return Message(RecordDict({"client": ConfigRecord({**who})}), reply_to=message)
    if kind != "query.letter":
        raise BridgeError(f"a bridge between servers answers no {kind!r}")
    return Message(RecordDict({"found": _letter(message, spool)}), reply_to=message)


def _letter(message: Message, spool: Path) -> ConfigRecord:
    order = message.content.config_records["order"]
    run, receiver, number = order["run"], order["receiver"], order["round"]
    known, wait = order["board"], order["wait"]
    whole = type(receiver) is int and receiver >= 0 and type(number) is int
    if not (whole and isinstance(run, str) and isinstance(known, str)):
        raise BridgeError("a question for a letter that cannot be read")
    limited = min(max(0.0, float(wait)), _LONGEST_WAIT)  # type: ignore[arg-type]
    found = Spool(spool, run).take(receiver, number, known, limited)  # type: ignore[arg-type]
    return ConfigRecord({"letter": found.letter, "board": found.board, "pulse": found.pulse})


def _settings(context: Context) -> tuple[int, Path]:
    config = context.node_config
    if unknown := sorted(set(config) - _KNOWN):
        raise BridgeError(
            f"{unknown[0]}: a bridge has {KEY} and {SPOOL} in its node config and nothing of a "
            "client; start clients as SuperNodes of their own"
        )
    server, spool = config[KEY], Path(str(config.get(SPOOL, "")))
    if type(server) is not int or server < 0:
        raise BridgeError(f"{KEY}={server!r}: the number of the server it belongs to, from 0")
    if not spool.is_absolute():
        raise BridgeError(f"{SPOOL}={str(spool)!r}: the absolute path of that server's spool")
    return server, spool
