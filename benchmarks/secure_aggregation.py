"""Secure aggregation next to the least it could cost: making the masks and nothing else.

One process, all clients one after the other. ``ours`` is one client's time over all four stages,
with its state through bytes between them, the median over clients. ``peer`` is the limit: AES-256
in counter mode making one mask for every neighbour and one for the client itself, into a buffer,
never added to anything. Above 0.5 we are within twice the limit. ``limit_with_keys`` adds the two
X25519 agreements a neighbour without which fresh keys cannot be had: on short vectors those
dominate, not the masks. ``chacha20_instead`` is the limit with the other cipher at hand.

Adversary and guarantees are those of `privacy.secagg`; nobody drops out here.
"""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from apps.common.threads import one_blas_thread
from privacy.secagg.graph import plan
from privacy.secagg.messages import Fields, layout_fields, to_fields
from privacy.secagg.protocol import SESSION_BYTES, ClientRound, Policy
from privacy.secagg.server import ServerRound
from privacy.secagg.state import ClientState

SIZES = ((100, 100_000), (500, 10_000))


def run() -> list[dict[str, Any]]:
    """Return one entry a size."""
    with one_blas_thread():
        return [_measure(clients, entries) for clients, entries in SIZES]


class _Clock:
    """Seconds and bytes of every client, and the server's seconds."""

    def __init__(self, clients: int) -> None:
        self.client = [0.0] * clients
        self.up = [0] * clients
        self.down = [0] * clients
        self.server = 0.0
        self._began = 0.0

    def start(self) -> None:
        self._began = time.perf_counter()

    def stop_client(self, index: int) -> None:
        self.client[index] += time.perf_counter() - self._began

    def stop_server(self) -> None:
        self.server += time.perf_counter() - self._began


def _measure(clients: int, entries: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    inputs = [{"x": rng.normal(size=entries)} for _ in range(clients)]
    server = ServerRound(
        {i: f"client-{i}" for i in range(clients)}, plan(clients), bytes(SESSION_BYTES), 1
    )
    clock = _Clock(clients)
    # As timeit does: the other clients' objects in this process are no cost of one client.
    gc.collect()
    gc.disable()
    try:
        total = _round(server, inputs, clock)
    finally:
        gc.enable()
    expected = np.sum([part["x"] for part in inputs], axis=0)
    if not np.allclose(total["x"], expected, rtol=0.0, atol=clients * 2.0**-32):
        raise RuntimeError("the secure sum is not the plain sum")

    neighbours = server.plan.neighbours
    ours, limit = statistics.median(clock.client), _mask_limit(entries, neighbours + 1, _aes)
    with_keys = limit + _agreement_limit(2 * neighbours)
    up, plain = statistics.median(clock.up), 8 * entries
    return {
        "name": "secure-aggregation",
        "ours": 1e3 * ours,
        "peer": 1e3 * limit,
        "peer_version": f"AES-256-CTR alone, cryptography {metadata.version('cryptography')}",
        "ratio": limit / ours,
        "unit": "ms a client",
        "setting": (
            f"{clients} clients x {entries:,}, {neighbours} neighbours, threshold "
            f"{server.plan.threshold}; ratio = limit / ours, 0.5 is twice the time of making the "
            "masks"
        ),
        "limit_with_keys": 1e3 * with_keys,
        "ratio_with_keys": with_keys / ours,
        "chacha20_instead": 1e3 * _mask_limit(entries, neighbours + 1, _chacha),
        "plain_sum_ms_a_client": 1e3 * _plain_sum(inputs) / clients,
        "server_seconds": clock.server,
        "bytes_up_a_client": up,
        "bytes_down_a_client": statistics.median(clock.down),
        "plain_bytes_a_client": plain,
        "bytes_up_ratio": up / plain,
        "machine": platform.processor() or platform.machine(),
    }


def _round(
    server: ServerRound, inputs: list[dict[str, Any]], clock: _Clock
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    everyone, policy = range(len(inputs)), Policy()
    states: dict[int, bytes] = {}
    for c in everyone:
        hello = server.hello(c)
        clock.start()
        client, advert = ClientRound.begin(hello, policy)
        states[c] = client.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, hello, advert)
        server.take_advert(c, advert)
    clock.start()
    server.close_keys()
    clock.stop_server()
    for c in everyone:
        directory = server.directory(c)
        clock.start()
        client = ClientRound(ClientState.from_bytes(states[c]), policy)
        sealed = client.share(directory)
        states[c] = client.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, directory, sealed)
        server.take_sealed(c, sealed)
    clock.start()
    server.close_shares()
    clock.stop_server()
    for c in everyone:
        delivery = server.delivery(c)
        clock.start()
        client = ClientRound(ClientState.from_bytes(states[c]), policy)
        client.deliver(delivery)
        vector, layout = client.mask(inputs[c])
        states[c] = client.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, delivery, layout_fields(layout))
        clock.up[c] += vector.nbytes
        server.take_masked(c, layout_fields(layout), vector)
    clock.start()
    server.close_masked()
    clock.stop_server()
    for c in everyone:
        question = server.question(c)
        clock.start()
        client = ClientRound(ClientState.from_bytes(states[c]), policy)
        shares = client.unmask(question)
        states[c] = client.state.to_bytes()
        clock.stop_client(c)
        _count(clock, c, question, shares)
        server.take_shares(c, shares)
    clock.start()
    total = server.total()
    clock.stop_server()
    return total


def _count(clock: _Clock, client: int, down: object, up: object) -> None:
    clock.down[client] += _bytes(to_fields(down))
    clock.up[client] += _bytes(to_fields(up))


def _bytes(record: Fields) -> int:
    """Return the bytes of a record's values as Flower counts them: 8 a number."""
    parts = [
        v for value in record.values() for v in (value if isinstance(value, list) else [value])
    ]
    return sum(8 if isinstance(part, int) else len(part) for part in parts)


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
        began = time.perf_counter()
        for seed in range(masks):
            make(seed.to_bytes(32, "big")).encryptor().update_into(zeros, buffer)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _agreement_limit(count: int) -> float:
    private = X25519PrivateKey.generate()
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    began = time.perf_counter()
    for _ in range(count):
        private.exchange(X25519PublicKey.from_public_bytes(public))
    return time.perf_counter() - began


def _plain_sum(inputs: list[dict[str, Any]]) -> float:
    began = time.perf_counter()
    total = np.zeros_like(inputs[0]["x"])
    for part in inputs:
        total += part["x"]
    return time.perf_counter() - began
