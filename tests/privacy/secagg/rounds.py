"""Whole rounds in memory, with clients that vanish at any stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.secagg.graph import Plan, plan
from trellis.privacy.secagg.protocol import Member, Policy
from trellis.privacy.secagg.ring import Ring, flatten
from trellis.privacy.secagg.server import ServerRound, Session
from trellis.privacy.secagg.state import ClientState

STAGES = ("masked", "agree", "unmask")
PAYLOAD = bytes(range(32))


def unchanged(stage: str, client: int, message: Any) -> Any:
    return message


@dataclass
class Devices:
    """Members of one session; ``tamper`` sees every message, both ways, and may change it."""

    session: Session
    states: dict[int, bytes] = field(default_factory=dict)
    policies: Mapping[int, Policy] = field(default_factory=dict)
    tamper: Callable[[str, int, Any], Any] = unchanged

    def member(self, client: int) -> Member:
        return Member(ClientState.from_bytes(self.states[client]), self.policies[client])

    def ask(self, client: int, action: str, message: Any, *rest: Any) -> Any:
        """Call one of a member's stages, its state through bytes; nothing is kept if it raises."""
        member = self.member(client)
        answer = getattr(member, action)(self.tamper(action, client, message), *rest)
        self.states[client] = member.state.to_bytes()
        return self.tamper(f"{action}-reply", client, answer)

    def masked(self, client: int, order: Any, arrays: Any, payload: bytes = PAYLOAD) -> Any:
        member = self.member(client)
        member.begin(self.tamper("order", client, order), payload)
        vector, beside, clips = member.mask(arrays)
        self.states[client] = member.state.to_bytes()
        return vector, self.tamper("masked-reply", client, beside), clips


def enter(
    count: int,
    *,
    policy: Policy | Mapping[int, Policy] | None = None,
    tamper: Callable[[str, int, Any], Any] = unchanged,
) -> Devices:
    """Return devices that have met."""
    policies = (
        policy if isinstance(policy, Mapping) else dict.fromkeys(range(count), policy or Policy())
    )
    session = Session({i: f"client-{i}" for i in range(count)})
    devices = Devices(session, policies=policies, tamper=tamper)
    for c in range(count):
        member, advert = Member.enter(tamper("hello", c, session.hello(c)), policies[c])
        devices.states[c] = member.state.to_bytes()
        session.take_advert(c, tamper("advert", c, advert))
    directory = session.close()
    for c in session.members:
        devices.ask(c, "meet", directory)
    return devices


@dataclass
class Played:
    """What is left after a round, for a look behind the scenes."""

    server: ServerRound
    devices: Devices
    vectors: dict[int, np.ndarray] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def survivors(self) -> list[int]:
        return self.server.survivors


def play(
    inputs: Mapping[int, Mapping[str, np.ndarray]],
    *,
    devices: Devices | None = None,
    drop: Mapping[str, set[int]] | None = None,
    chosen: Plan | None = None,
    number: int = 1,
    until: str = "",
    fraction_bits: int = 32,
    payload: Callable[[int], bytes] = lambda client: PAYLOAD,
    **kwargs: Any,
) -> Played:
    """Play one round; ``drop`` names who does not answer which stage, ``until`` where to stop."""
    drop, devices = drop or {}, devices or enter(len(inputs), **kwargs)
    participants = sorted(inputs)
    server = ServerRound(
        devices.session,
        number,
        participants,
        chosen or plan(len(participants)),
        ring=Ring(fraction_bits),
    )
    played = Played(server, devices)

    def there(stage: str, members: list[int]) -> list[int]:
        return [c for c in members if c not in drop.get(stage, set())]

    for c in there("masked", participants):
        vector, beside, _ = devices.masked(c, server.order, inputs[c], payload(c))
        played.vectors[c] = vector
        server.take_masked(c, beside, vector)
    if until == "masked":
        return played
    server.close_masked()
    played.failed |= server.refused
    for c in there("agree", server.survivors):
        server.take_agreed(c, devices.ask(c, "agree", server.roll()))
    if until == "agree":
        return played
    for c in there("unmask", server.close_agreed()):
        opened = devices.ask(c, "unmask", server.question(c))
        try:
            server.take_opened(c, opened)
        except BadMessage as error:
            played.failed[c] = str(error)
    return played


def plain(inputs, members, fraction_bits: int = 32) -> np.ndarray:
    """Return the sum in the ring without any protocol."""
    ring = Ring(fraction_bits, len(inputs))
    return np.sum([flatten(inputs[c], ring)[0] for c in members], axis=0, dtype=np.uint64)


def some_inputs(count: int, size: int = 7, seed: int = 0) -> dict[int, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {
        i: {"b": rng.normal(size=size), "a": rng.normal(size=(2, 3)) * 1e3} for i in range(count)
    }
