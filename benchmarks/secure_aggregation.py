"""Secure aggregation next to the least it could cost: making the masks and nothing else.

One process, all clients one after the other. ``ours`` is one client's time for a round, its share
of the set-up of keys included, over `ROUNDS` rounds (the set-up and the first, and as many times a
later one as are left), the median over clients: hashing a payload as
long as the vector, all stages, and its state through bytes between them. ``peer`` is the limit:
AES-256 in counter mode making one mask for every neighbour and one for the client itself, into a
buffer, never added to anything, timed in turn with the rounds. Above 0.5 we are within twice the
limit. ``set_up`` is a client's time for keys and directory, once a run; ``chacha20_instead`` is the
limit with the other cipher at hand.

Adversary and guarantees are those of `privacy.secagg`; keys are not signed and nobody drops out.
"""

from __future__ import annotations

import gc
import hashlib
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from trellis.apps.common.threads import one_blas_thread
from trellis.privacy.secagg.graph import plan
from trellis.privacy.secagg.messages import Fields, to_fields
from trellis.privacy.secagg.protocol import Member, Policy
from trellis.privacy.secagg.server import ServerRound, Session
from trellis.privacy.secagg.state import ClientState

from .timing import entry

ROUNDS = 20
# So many are made: the first, in which a large session agrees with its neighbours, and others.
MADE = 3
SIZES = ((100, 100_000), (500, 10_000))
QUICK = ((50, 100_000), (200, 10_000))


def run(full: bool = False) -> list[dict[str, Any]]:
    """Return one entry a size."""
    with one_blas_thread():
        return [_measure(clients, entries) for clients, entries in (SIZES if full else QUICK)]


class _Clock:
    """Seconds and bytes of every client, and the server's seconds."""

    def __init__(self, clients: int) -> None:
        self.client = [0.0] * clients
        self.up = [0] * clients
        self.down = [0] * clients
        self.server = 0.0
        self._began = 0.0

    def start(self) -> None:
        self._began = time.process_time()

    def stop_client(self, index: int) -> None:
        self.client[index] += time.process_time() - self._began

    def stop_server(self) -> None:
        self.server += time.process_time() - self._began


def _measure(clients: int, entries: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    inputs = [{"x": rng.normal(size=entries)} for _ in range(clients)]
    clock, chosen = _Clock(clients), plan(clients)
    masks = chosen.neighbours + 1
    # As timeit does: the other clients' objects in this process are no cost of one client.
    gc.collect()
    gc.disable()
    try:
        session, states = _set_up(clients, clock)
        set_up, spent, limits = statistics.median(clock.client), [], []
        for number in range(1, MADE + 1):
            server = ServerRound(session, number, list(range(clients)), chosen)
            total = _round(server, inputs, states, clock)
            spent.append(statistics.median(clock.client))
            limits.append(_mask_limit(entries, masks, _aes, 5))
    finally:
        gc.enable()
    expected = np.sum([part["x"] for part in inputs], axis=0)
    if not np.allclose(total["x"], expected, rtol=0.0, atol=clients * 2.0**-32):
        raise RuntimeError("the secure sum is not the plain sum")

    later = (spent[-1] - spent[0]) / (MADE - 1)
    ours, limit = (spent[0] + (ROUNDS - 1) * later) / ROUNDS, statistics.median(limits)
    up, plain = statistics.median(clock.up) / MADE, 8 * entries
    return entry(
        "secure-aggregation",
        [1e3 * ours],
        [1e3 * limit],
        peer_version=f"AES-256-CTR alone, cryptography {metadata.version('cryptography')}",
        unit="ms a client and round",
        setting=(
            f"{clients} clients x {entries:,}, {chosen.neighbours} neighbours, threshold "
            f"{chosen.threshold}, {ROUNDS} rounds with one set-up; ratio = limit / ours, 0.5 is "
            "twice the time of making the masks"
        ),
        ours_cores=1,
        peer_cores=1,
        set_up_ms_a_client=1e3 * set_up,
        chacha20_instead=1e3 * _mask_limit(entries, masks, _chacha),
        plain_sum_ms_a_client=1e3 * _plain_sum(inputs) / clients,
        server_seconds_a_round=clock.server / MADE,
        bytes_up_a_client=up,
        bytes_down_a_client=statistics.median(clock.down) / MADE,
        plain_bytes_a_client=plain,
        bytes_up_ratio=up / plain,
        machine=platform.processor() or platform.machine(),
    )


def _set_up(clients: int, clock: _Clock) -> tuple[Session, dict[int, bytes]]:
    session, states, policy = Session({i: f"client-{i}" for i in range(clients)}), {}, Policy()
    for c in range(clients):
        hello = session.hello(c)
        clock.start()
        member, advert = Member.enter(hello, policy)
        states[c] = member.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, hello, advert)
        session.take_advert(c, advert)
    directory = session.close()
    for c in range(clients):
        clock.start()
        member = Member(ClientState.from_bytes(states[c]), policy)
        member.meet(directory)
        states[c] = member.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, directory, None)
    return session, states


def _round(
    server: ServerRound, inputs: list[dict[str, Any]], states: dict[int, bytes], clock: _Clock
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    everyone, policy, payload = range(len(inputs)), Policy(), bytes(inputs[0]["x"].nbytes)

    def ask(c: int, action: str, message: object) -> Any:
        clock.start()
        member = Member(ClientState.from_bytes(states[c]), policy)
        answer = getattr(member, action)(message)
        states[c] = member.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, message, answer)
        return answer

    for c in everyone:
        clock.start()
        member = Member(ClientState.from_bytes(states[c]), policy)
        member.begin(server.order, hashlib.sha256(payload).digest())
        vector, beside, _ = member.mask(inputs[c])
        states[c] = member.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, server.order, beside)
        clock.up[c] += vector.nbytes
        server.take_masked(c, beside, vector)
    _timed(clock, server.close_masked)
    for c in everyone:
        server.take_agreed(c, ask(c, "agree", server.roll()))
    _timed(clock, server.close_agreed)
    for c in everyone:
        server.take_opened(c, ask(c, "unmask", server.question(c)))
    total: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = _timed(clock, server.total)
    return total


def _timed(clock: _Clock, step: Callable[[], Any]) -> Any:
    clock.start()
    result = step()
    clock.stop_server()
    return result


def _count(clock: _Clock, client: int, down: object, up: object | None) -> None:
    clock.down[client] += _bytes(to_fields(down))
    if up is not None:  # the directory is read and not answered
        clock.up[client] += _bytes(to_fields(up))


def _bytes(record: Fields) -> int:
    """Return the bytes of a record's values as Flower counts them: 8 a number."""
    parts = [
        v for value in record.values() for v in (value if isinstance(value, list) else [value])
    ]
    return sum(8 if isinstance(part, int | float) else len(part) for part in parts)


def _aes(key: bytes) -> Cipher[modes.CTR]:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16)))


def _chacha(key: bytes) -> Cipher[None]:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), None)


def _mask_limit(
    entries: int, masks: int, make: Callable[[bytes], Cipher[Any]], repeats: int = 15
) -> float:
    zeros, buffer = bytes(8 * entries), bytearray(8 * entries)
    times = []
    for _ in range(repeats):
        began = time.process_time()
        for seed in range(masks):
            make(seed.to_bytes(32, "big")).encryptor().update_into(zeros, buffer)
        times.append(time.process_time() - began)
    return statistics.median(times)


def _plain_sum(inputs: list[dict[str, Any]]) -> float:
    began = time.process_time()
    total = np.zeros_like(inputs[0]["x"])
    for part in inputs:
        total += part["x"]
    return time.process_time() - began
