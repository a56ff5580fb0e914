"""A whole round in memory, with clients that vanish after any stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privacy.secagg.graph import Plan, plan
from privacy.secagg.messages import layout_fields
from privacy.secagg.protocol import ClientRound, Policy
from privacy.secagg.ring import Ring, flatten
from privacy.secagg.server import ServerRound
from privacy.secagg.state import ClientState

STAGES = ("keys", "shares", "masked", "unmask")
SESSION = bytes(range(16))


@dataclass
class Played:
    """What is left after a round, for a look behind the scenes."""

    server: ServerRound
    clients: dict[int, ClientRound] = field(default_factory=dict)
    survivors: list[int] = field(default_factory=list)
    vectors: dict[int, np.ndarray] = field(default_factory=dict)


def play(
    inputs: Mapping[int, Mapping[str, np.ndarray]],
    *,
    drop: Mapping[str, set[int]] | None = None,
    policy: Policy | Mapping[int, Policy] | None = None,
    chosen: Plan | None = None,
    fraction_bits: int = 32,
    number: int = 1,
    tamper: Callable[[str, int, Any], Any] = lambda stage, client, message: message,
) -> Played:
    """Play all stages up to the shares; ``drop`` names who does not answer which stage.

    ``tamper`` sees every message that passes the server, both ways, and may change it.
    """
    drop = drop or {}
    policies = policy if isinstance(policy, Mapping) else dict.fromkeys(inputs, policy or Policy())
    chosen = chosen or plan(len(inputs))
    names = {i: f"client-{i}" for i in inputs}
    server = ServerRound(names, chosen, SESSION, number, fraction_bits)
    played = Played(server)

    def there(stage: str, members) -> list[int]:
        return [c for c in members if c not in drop.get(stage, set())]

    def client(index: int) -> ClientRound:
        # Through bytes: that is how it survives between two messages.
        state = ClientState.from_bytes(played.clients[index].state.to_bytes())
        played.clients[index] = ClientRound(state, policies[index])
        return played.clients[index]

    for c in there("keys", inputs):
        hello = tamper("hello", c, server.hello(c))
        played.clients[c], advert = ClientRound.begin(hello, policies[c])
        server.take_advert(c, tamper("advert", c, advert))
    for c in there("shares", server.close_keys()):
        sealed = client(c).share(tamper("directory", c, server.directory(c)))
        server.take_sealed(c, tamper("sealed", c, sealed))
    for c in there("masked", server.close_shares()):
        taking_part = client(c)
        taking_part.deliver(tamper("delivery", c, server.delivery(c)))
        vector, layout = taking_part.mask(inputs[c])
        played.vectors[c] = vector
        server.take_masked(c, layout_fields(layout), vector)
    played.survivors, _ = server.close_masked()
    for c in there("unmask", played.survivors):
        shares = client(c).unmask(tamper("question", c, server.question(c)))
        server.take_shares(c, tamper("shares", c, shares))
    return played


def plain(inputs, members, fraction_bits: int = 32) -> np.ndarray:
    """Return the sum in the ring without any protocol."""
    ring = Ring(fraction_bits, len(inputs))
    return np.sum([flatten(inputs[c], ring) for c in members], axis=0, dtype=np.uint64)


def some_inputs(count: int, size: int = 7, seed: int = 0) -> dict[int, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {
        i: {"b": rng.normal(size=size), "a": rng.normal(size=(2, 3)) * 1e3} for i in range(count)
    }
