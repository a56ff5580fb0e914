"""The server's side of secure aggregation, without any transport.

`Session` collects and hands out keys, once; `ServerRound` is one round of one group. Each stage:
what to send to a client, taking its answer (a `BadMessage` concerns that client only), and closing
the stage. Closing raises `Again` where the round cannot be opened, with the clients it can be made
again without, and `TooFewClients` where that would be pointless.

Making a round again: a survivor that vanishes before it has given the pair seeds of its dropped
neighbours leaves masks in the sum that nobody else knows. The next round, with a new number, new
masks and without the missing, does not need them. The first opened nothing: its sum stays under the
masks that are missing. Whoever has both sums, because the missing client answers the first round
after all, knows the difference: what those left out in between sent. `ServerRound` drops late
answers; a server that does not could also have asked for two sums over two sets, which nothing but
noise in the values protects against.

Wrong answers: every share and every seed is committed to when the vector comes. A share that does
not fit is passed over while t others fit; a client whose seeds do not fit, or that is at odds with
its neighbours about their common seeds, is left out.

Adversary: this is the party the clients are protected from; see `protocol` for the bounds. What it
sees of a client is uniform words, the layout of its vector, its key, shares under pads. It detects
wrong shares and seeds, but not wrong values in a client's vector.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from .errors import Again, BadMessage, TooFewClients
from .graph import FEWEST, Plan, neighbours
from .keys import KEY_BYTES
from .masks import Masker
from .messages import (
    Advert,
    Agreed,
    Directory,
    Hello,
    Masked,
    Opened,
    Order,
    Question,
    Roll,
    layout_from,
    pack,
    rows,
)
from .opening import Opening
from .pairs import COMMITMENT_BYTES, MAC_BYTES, SEED_BYTES, directory_hash
from .protocol import SESSION_BYTES, graph_nonce
from .ring import Layout, Reals, Ring, Words, layout_size, unflatten
from .shamir import SHARE_BYTES


class Session:
    """The keys of one session.

    Parameters
    ----------
    names : the clients that are asked, by index

    Attributes
    ----------
    members : the clients that sent keys and have not refused the directory
    met : those that have accepted it, by their word or by an answer to the order that brought it
    directory, hash : everyone's keys, once closed
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = dict(names)
        self.session = secrets.token_bytes(SESSION_BYTES)
        self._adverts: dict[int, Advert] = {}
        self.members: list[int] = []
        self.met: set[int] = set()
        self.hash = b""
        self.directory: Directory | None = None

    def hello(self, client: int) -> Hello:
        """Return what opens the session for a client."""
        return Hello(self.session, client, self.names[client])

    def take_advert(self, client: int, advert: Advert) -> None:
        """Take a client's key, if it is one: a wrong one would stop everybody else."""
        try:
            public = X25519PublicKey.from_public_bytes(advert.key)
            X25519PrivateKey.generate().exchange(public)
        except ValueError as error:
            raise BadMessage(f"no valid public key of {KEY_BYTES} bytes") from error
        if any(advert.key == other.key for other in self._adverts.values()):
            raise BadMessage("this public key is another client's")
        self._adverts[client] = advert

    def close(self) -> Directory:
        """Return the directory of the clients that sent keys, for all of them."""
        self.members = sorted(self._adverts)
        if len(self.members) < FEWEST:
            raise TooFewClients.left(len(self.members), len(self.names), "sent keys", FEWEST)
        adverts = [self._adverts[member] for member in self.members]
        names = [self.names[member] for member in self.members]
        signatures = [advert.signature for advert in adverts]
        keys = [advert.key for advert in adverts]
        entries = zip(self.members, names, keys, signatures, strict=True)
        self.hash = directory_hash(self.session, entries)
        self.directory = Directory(
            self.session, pack(self.members), names, b"".join(keys), signatures
        )
        return self.directory


class ServerRound:
    """One round of one group.

    Parameters
    ----------
    session : a closed one
    number : from 1, larger in every round of the session
    participants : the group's, members of the session
    plan : neighbours and threshold, see `graph.plan`
    group : its label
    ring : fraction bits and range; the number of clients is that of the participants
    stay : how many must be in the sum
    """

    def __init__(
        self,
        session: Session,
        number: int,
        participants: list[int],
        plan: Plan,
        *,
        group: str = "",
        ring: Ring | None = None,
        stay: int = 0,
    ) -> None:
        if len(participants) != plan.clients:
            raise ValueError(
                f"a plan for {plan.clients} clients, but {len(participants)} are asked"
            )
        self.session, self.number, self.plan = session, number, plan
        self.participants = sorted(participants)
        given = ring or Ring()
        self.ring = Ring(given.fraction_bits, plan.clients, given.largest)
        self.order = Order(
            session.session,
            number,
            group,
            pack(participants),
            plan.neighbours,
            plan.threshold,
            given.fraction_bits,
            float(given.largest),
            stay,
        )
        self.graph = neighbours(self.participants, plan.neighbours, graph_nonce(session.hash))
        self._vectors: dict[int, Words] = {}
        self._layouts: dict[int, Layout] = {}
        self._masked: dict[int, Masked] = {}
        self._macs: dict[int, dict[int, bytes]] = {}
        self.survivors: list[int] = []
        self.refused: dict[int, str] = {}
        self.opening: Opening | None = None

    def _name(self, client: int) -> str:
        return self.session.names[client]

    # --- masked --------------------------------------------------------------------------------

    def take_masked(self, client: int, masked: Masked, vector: Words) -> None:
        """Take a client's masked vector and what goes with it."""
        layout, k = layout_from(masked), len(self.graph[client])
        if vector.dtype != np.uint64 or vector.shape != (layout_size(layout),):
            raise BadMessage(
                f"a masked vector of dtype {vector.dtype} and shape {vector.shape}, where "
                f"{layout_size(layout)} words were announced"
            )
        rows(masked.sealed, k, SHARE_BYTES, "sealed shares")
        rows(masked.share_commitments, k + 1, COMMITMENT_BYTES, "commitments to shares")
        rows(masked.seed_commitments, k, COMMITMENT_BYTES, "commitments to seeds")
        self._vectors[client], self._layouts[client] = vector, layout
        self._masked[client] = masked

    def close_masked(self, expected: Layout | None = None) -> list[int]:
        """Return the clients whose sum it will be; ``refused`` says why others are left out.

        Vectors must be laid out as ``expected``, or as most are where that is not known.
        """
        refused = self.refused
        if expected is None and self._layouts:
            expected = Counter(self._layouts[c] for c in sorted(self._layouts)).most_common(1)[0][0]
        for client, layout in list(self._layouts.items()):
            if layout != expected:
                refused[client] = f"its arrays are {layout}, not {expected}"
        for client in list(refused):
            self._leave_out(client)
        for client in self._at_odds():
            refused[client] = (
                "its masks are not those of its neighbours: it was told something else, or lies"
            )
            self._leave_out(client)
        self.survivors = sorted(self._vectors)
        self._enough(self.survivors, "sent a masked vector")
        missing = set(self.participants) - set(self.survivors)
        if len(self.survivors) < self.order.stay:
            raise Again(
                f"{len(self.survivors)} clients are left, {self.order.stay} must stay, whose noise "
                "the others count on; nothing was revealed",
                {c: refused.get(c, "it sent no masked vector") for c in missing},
            )
        for client in self.survivors:
            kept = sum(peer not in missing for peer in self.graph[client]) + 1
            if kept < self.plan.threshold:
                raise Again(
                    f"{kept} of client {self._name(client)}'s holders are left; the threshold is "
                    f"{self.plan.threshold}; nothing was revealed",
                    {c: refused.get(c, "it sent no masked vector") for c in missing},
                )
        masked = {client: self._masked[client] for client in self.survivors}
        self.opening = Opening(self.graph, self.plan.threshold, masked)
        return self.survivors

    def _leave_out(self, client: int) -> None:
        del self._vectors[client], self._layouts[client], self._masked[client]

    def _at_odds(self) -> list[int]:
        """Return clients to leave out so that all pairs that are left have committed alike."""
        commitments = {
            client: dict(zip(self.graph[client], _rows(masked.seed_commitments), strict=True))
            for client, masked in self._masked.items()
        }
        odds = {
            client: {
                peer
                for peer, value in own.items()
                if peer in commitments and commitments[peer][client] != value
            }
            for client, own in commitments.items()
        }
        out = []
        while most := max(map(len, odds.values()), default=0):
            # Of a pair that is at odds with each other only nobody can say which is right.
            for client in [c for c, others in odds.items() if len(others) == most]:
                out.append(client)
                for other in odds.pop(client):
                    odds.get(other, set()).discard(client)
        return out

    # --- consistency ---------------------------------------------------------------------------

    def roll(self) -> Roll:
        """Return who is in the sum."""
        return Roll(self.session.session, self.number, pack(self.survivors))

    def take_agreed(self, client: int, agreed: Agreed) -> None:
        """Take a client's words to its neighbours in the sum."""
        kept = self._kept(client)
        macs = rows(agreed.macs, len(kept), MAC_BYTES, "words")
        self._macs[client] = dict(zip(kept, macs, strict=True))

    @property
    def agreed(self) -> list[int]:
        """The clients to ask on."""
        return sorted(self._macs)

    def close_agreed(self) -> list[int]:
        """Return the clients that agreed, where they can open the sum."""
        self._enough(self.agreed, "agreed on who is in the sum")
        self._all_there(set(self._macs), "it did not agree on who is in the sum")
        return self.agreed

    def _all_there(self, there: set[int], reason: str) -> None:
        """Raise `Again` where the sum cannot be opened by those who are ``there``."""
        gone = dict.fromkeys(set(self.survivors) - there, reason)
        missing = set(self.participants) - set(self.survivors)
        for client in self.survivors:
            kept = sum(peer in there for peer in (client, *self.graph[client]))
            if kept < self.plan.threshold:
                raise Again(
                    f"{kept} of client {self._name(client)}'s holders are left; the threshold is "
                    f"{self.plan.threshold}",
                    gone,
                )
        for client in sorted(gone):
            if missing & set(self.graph[client]):
                raise Again(f"client {self._name(client)} alone knew some of its masks", gone)

    # --- unmask --------------------------------------------------------------------------------

    def question(self, client: int) -> Question:
        """Return the neighbours' words and sealed shares for a client."""
        kept = self._kept(client)
        signers = [peer for peer in kept if peer in self._macs]
        return Question(
            *(self.session.session, self.number, pack(signers)),
            b"".join(self._macs[peer][client] for peer in signers),
            b"".join(self._sealed(peer, client) for peer in kept),
        )

    def _sealed(self, owner: int, holder: int) -> bytes:
        start = SHARE_BYTES * bisect_left(self.graph[owner], holder)
        return self._masked[owner].sealed[start : start + SHARE_BYTES]

    def take_opened(self, client: int, opened: Opened) -> None:
        """Take the shares and seeds that a client gives; `BadMessage` where seeds are wrong."""
        kept, owners = self._kept(client), sorted([client, *self._kept(client)])
        dropped = [peer for peer in self.graph[client] if peer not in set(kept)]
        shares = rows(opened.shares, len(owners), SHARE_BYTES, "shares")
        seeds = rows(opened.seeds, len(dropped), SEED_BYTES, "seeds")
        assert self.opening is not None
        self.opening.take(
            client,
            dict(zip(owners, shares, strict=True)),
            dict(zip(dropped, seeds, strict=True)),
        )

    def _kept(self, client: int) -> list[int]:
        return [peer for peer in self.graph[client] if peer in self._masked]

    def total(self) -> dict[str, Reals]:
        """Return the sum over the survivors."""
        return unflatten(self.total_words(), self._layouts[self.survivors[0]], self.ring)

    def total_words(self) -> Words:
        """Return the sum in the ring; `Again` where too little has come to open it."""
        assert self.opening is not None
        opening = self.opening
        self._enough(sorted(opening.given), "helped to unmask")
        self._all_there(set(opening.given), "it did not help to unmask the sum")
        seeds = opening.self_seeds(self.session.names)
        total = np.zeros_like(self._vectors[self.survivors[0]])
        for client in self.survivors:
            np.add(total, self._vectors[client], out=total)
        masker = Masker(total.size)
        for seed in seeds:
            masker.subtract(total, seed)
        for client, given in opening.pair_seeds.items():
            for peer, seed in given.items():
                # The client had added the mask where the dropped one is the higher one.
                (masker.subtract if peer > client else masker.add)(total, seed)
        return total

    def _enough(self, members: list[int], what: str) -> None:
        if len(members) < FEWEST:
            raise TooFewClients.left(len(members), self.plan.clients, what, FEWEST)


def _rows(data: bytes) -> list[bytes]:
    return [data[i : i + COMMITMENT_BYTES] for i in range(0, len(data), COMMITMENT_BYTES)]
