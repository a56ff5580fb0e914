"""The server's side of secure aggregation, without any transport.

Each stage: what to send to a client, taking its answer (a `BadMessage` concerns that client only),
and closing the stage, which raises `TooFewClients` where the threshold is not met. Then no share
has been asked for and nothing is revealed.

Adversary: this is the party the clients are protected from; see `protocol` for the bounds. What it
sees of a client is uniform words, the layout of its vector, its keys and sealed shares. It detects
wrong shares and wrong keys, but not wrong values in a client's vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from . import shamir
from .errors import BadMessage, SecAggError, TooFewClients
from .graph import Plan, neighbours
from .keys import KEY_BYTES, Agreement, Scope, public_key
from .masks import Masker
from .messages import (
    Advert,
    Delivery,
    Directory,
    Hello,
    Masked,
    Question,
    Sealed,
    Shares,
    layout_from,
)
from .ring import Layout, Reals, Ring, Words, layout_size, unflatten
from .shamir import SHARE_BYTES, combine

# Two shares of 33 bytes and the cipher's tag.
_SEALED_BYTES = 2 * SHARE_BYTES + 16


class ServerRound:
    """One round of the server.

    Parameters
    ----------
    names : the clients that are asked, by index
    plan : neighbours and threshold, see `graph.plan`
    session : 16 bytes, the same for all rounds of a run; also the nonce of the neighbour graph
    number : from 1, larger in every round of the session
    fraction_bits : see `ring`
    """

    def __init__(
        self,
        names: Mapping[int, str],
        plan: Plan,
        session: bytes,
        number: int,
        fraction_bits: int = 32,
    ) -> None:
        if len(names) != plan.clients:
            raise ValueError(f"a plan for {plan.clients} clients, but {len(names)} are asked")
        self.names, self.plan = dict(names), plan
        self.session, self.number = session, number
        self.ring = Ring(fraction_bits, plan.clients)
        self._adverts: dict[int, Advert] = {}
        self._graph: dict[int, list[int]] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._commitments: dict[int, bytes] = {}
        self._vectors: dict[int, Words] = {}
        self._layouts: dict[int, Layout] = {}
        self._self_shares: dict[int, dict[int, bytes]] = {}
        self._key_shares: dict[int, dict[int, bytes]] = {}

    # --- 1: keys -------------------------------------------------------------------------------

    def hello(self, client: int) -> Hello:
        """Return what opens the round for a client."""
        return Hello(
            *(self.session, self.number, client, self.names[client]),
            *(self.plan.clients, self.ring.fraction_bits),
        )

    def take_advert(self, client: int, advert: Advert) -> None:
        """Take a client's keys."""
        if {len(advert.cipher_key), len(advert.mask_key)} != {KEY_BYTES}:
            raise BadMessage(f"public keys of {KEY_BYTES} bytes are needed")
        self._adverts[client] = advert

    def close_keys(self) -> list[int]:
        """Draw the graph over the clients that sent keys; return them."""
        members = sorted(self._adverts)
        self._enough(members, "sent keys")
        nonce = Scope(self.session, self.number).info("graph")
        self._graph = neighbours(members, self.plan.neighbours, nonce)
        return members

    # --- 2: shares -----------------------------------------------------------------------------

    def directory(self, client: int) -> Directory:
        """Return a client's neighbours and their keys."""
        peers = self._graph[client]
        adverts = [self._adverts[peer] for peer in peers]
        return Directory(
            *(self.session, self.number, self.plan.threshold, peers),
            [self.names[peer] for peer in peers],
            [advert.cipher_key for advert in adverts],
            [advert.mask_key for advert in adverts],
            [advert.signature for advert in adverts],
        )

    def take_sealed(self, client: int, sealed: Sealed) -> None:
        """Take the shares that a client sealed for its neighbours."""
        if sorted(sealed.peers) != self._graph[client] or len(sealed.sealed) != len(sealed.peers):
            raise BadMessage("sealed shares for every neighbour, once each, are needed")
        if any(len(part) != _SEALED_BYTES for part in sealed.sealed):
            raise BadMessage(f"sealed shares of {_SEALED_BYTES} bytes are needed")
        self._sealed[client] = dict(zip(sealed.peers, sealed.sealed, strict=True))
        self._commitments[client] = sealed.commitment

    def close_shares(self) -> list[int]:
        """Return the clients that go on: those with enough neighbours that sent shares too."""
        # Whoever has too few could not be recovered later, and one such client spoils the sum.
        while weak := [c for c in self._sealed if self._holders(c, self._sealed) < self._t]:
            for client in weak:
                del self._sealed[client]
        members = sorted(self._sealed)
        self._enough(members, "sent shares")
        return members

    # --- 3: masked vectors ---------------------------------------------------------------------

    def delivery(self, client: int) -> Delivery:
        """Return the shares that were sealed for a client."""
        peers = [peer for peer in self._graph[client] if peer in self._sealed]
        return Delivery(
            self.session, self.number, peers, [self._sealed[peer][client] for peer in peers]
        )

    def take_masked(self, client: int, masked: Masked, vector: Words) -> None:
        """Take a client's masked vector."""
        layout = layout_from(masked)
        if vector.dtype != np.uint64 or vector.shape != (layout_size(layout),):
            raise BadMessage(
                f"a masked vector of dtype {vector.dtype} and shape {vector.shape}, where "
                f"{layout_size(layout)} words were announced"
            )
        self._vectors[client], self._layouts[client] = vector, layout

    def close_masked(self, expected: Layout | None = None) -> tuple[list[int], dict[int, str]]:
        """Return the clients whose sum it will be, and why others' vectors are left out.

        Vectors must be laid out as ``expected``, or as most are where that is not known.
        """
        refused = {}
        if expected is None and self._layouts:
            expected = Counter(self._layouts[c] for c in sorted(self._layouts)).most_common(1)[0][0]
        for client, layout in list(self._layouts.items()):
            if layout != expected:
                refused[client] = f"its arrays are {layout}, not {expected}"
                del self._vectors[client], self._layouts[client]
        survivors = sorted(self._vectors)
        self._enough(survivors, "sent a masked vector")
        self._all_recoverable(survivors)
        return survivors, refused

    # --- 4: unmasking --------------------------------------------------------------------------

    def question(self, client: int) -> Question:
        """Return whose shares a client is asked for."""
        peers = [peer for peer in self._graph[client] if peer in self._sealed]
        return Question(
            *(self.session, self.number),
            [peer for peer in peers if peer in self._vectors],
            [peer for peer in peers if peer not in self._vectors],
        )

    def take_shares(self, client: int, shares: Shares) -> None:
        """Take the shares that a client gives."""
        asked = self.question(client)
        if sorted(shares.survivors) != sorted([client, *asked.survivors]):
            raise BadMessage("shares of other self seeds than were asked for")
        if sorted(shares.dropped) != asked.dropped:
            raise BadMessage("shares of other mask keys than were asked for")
        given = (
            (shares.survivors, shares.self_shares, self._self_shares),
            (shares.dropped, shares.key_shares, self._key_shares),
        )
        for owners, values, _ in given:
            if len(owners) != len(values) or any(len(v) != SHARE_BYTES for v in values):
                raise BadMessage(f"one share of {SHARE_BYTES} bytes for each client is needed")
        for owners, values, kept in given:
            for owner, value in zip(owners, values, strict=True):
                kept.setdefault(owner, {})[client + 1] = value

    def total(self) -> dict[str, Reals]:
        """Return the sum over the clients whose vectors came."""
        words = self.total_words()
        return unflatten(words, next(iter(self._layouts.values())), self.ring)

    def total_words(self) -> Words:
        """Return the sum in the ring."""
        vectors = list(self._vectors.values())
        total = np.zeros_like(vectors[0])
        for vector in vectors:
            np.add(total, vector, out=total)
        masker = Masker(total.size)
        for client in self._vectors:
            expected = self._commitments[client]
            seed = self._recover(client, self._self_shares, shamir.commitment, expected)
            masker.subtract(total, seed)
        for client in self._dropped():
            expected = self._adverts[client].mask_key
            private = self._recover(client, self._key_shares, public_key, expected)
            self._remove_pair_masks(total, masker, client, private)
        return total

    def _remove_pair_masks(self, total: Words, masker: Masker, client: int, private: bytes) -> None:
        scope = Scope(self.session, self.number)
        agreement = Agreement(private, (client, self.names[client]), scope)
        for peer in self._graph[client]:
            if peer in self._vectors:
                seed = agreement.seed((peer, self.names[peer]), self._adverts[peer].mask_key)
                # The peer had added the mask where the dropped client is the higher one.
                (masker.subtract if client > peer else masker.add)(total, seed)

    def _recover(
        self,
        client: int,
        kept: Mapping[int, dict[int, bytes]],
        fingerprint: Callable[[bytes], bytes],
        expected: bytes,
    ) -> bytes:
        try:
            return combine(kept.get(client, {}), self._t, lambda s: fingerprint(s) == expected)
        except SecAggError as error:
            raise type(error)(f"client {self.names[client]} cannot be unmasked: {error}") from error

    # --- counting ------------------------------------------------------------------------------

    @property
    def _t(self) -> int:
        return self.plan.threshold

    def _dropped(self) -> list[int]:
        """Return the clients that others share masks with, but whose vector did not come."""
        return [
            client
            for client in sorted(self._sealed)
            if client not in self._vectors
            and any(peer in self._vectors for peer in self._graph[client])
        ]

    def _holders(self, client: int, present: Mapping[int, object]) -> int:
        return (client in present) + sum(peer in present for peer in self._graph[client])

    def _enough(self, members: list[int], what: str) -> None:
        if len(members) < self.plan.survivors:
            raise TooFewClients(
                f"{len(members)} of {self.plan.clients} clients {what}; the threshold is "
                f"{self.plan.survivors}; nothing was revealed"
            )

    def _all_recoverable(self, survivors: list[int]) -> None:
        for client in [*survivors, *self._dropped()]:
            if (holders := self._holders(client, self._vectors)) < self._t:
                raise TooFewClients(
                    f"{holders} of the holders of client {self.names[client]}'s shares are left; "
                    f"the threshold is {self._t}; nothing was revealed"
                )
