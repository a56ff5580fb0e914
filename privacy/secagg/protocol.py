"""The client's side of secure aggregation, without any transport.

    masked_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)   (mod 2^64)

over the neighbours v of u in the round. In the sum over all clients the pair masks cancel; the
server removes PRG(b_u) of those whose vector came, from t shares of b_u, and PRG(s_uv) towards
those whose vector did not, from the seed s_uv that u gives.

Once a session every client sends a public key, and with its first order or before it (where an
order costs a release) is told everyone's; roots of pairs come from them (`pairs`), and the hash of
all keys is in every mask: clients with different directories have no mask in common, and do not add
up. A round has three exchanges:

    masked       the client is told who takes part and works out for itself who its neighbours are;
                 it sends its masked vector and shares of b_u, a share for each neighbour
    consistency  it is told U, whose vectors came, and gives each neighbour in U its word (a MAC) on
                 U, on who takes part and on the payload
    unmask       it is shown its neighbours' words; where t of its h holders, itself included, gave
                 theirs on the very U it was told, it gives its share of b_v for the neighbours v
                 in U and the seed s_uv for those not in U. Then it forgets the round.

Adversary: a server that sends what it likes to whom it likes, where keys are signed and checked,
together with c of any client's h holders. While c <= t - 1 nobody's b_u is known but through honest
holders, each of which gives its share of b_u or its s_uv, never both. For u's vector to open on its
own or with colluders only, all its masks with honest neighbours must be known; those of the honest
holders that gave shares of b_u (t - c or more, u perhaps among them) u itself would have to give,
so they would all have to be outside the U that u was told, on which t - c or more honest holders
gave their word. So while c < 2 t - h - 1, about a third of the holders, u's vector opens in sums
with other honest clients only, at least 2 t - h - 1 - c of them; and where the graph is complete,
in one sum only, that over one U.

**Noise in the sum** (`privacy.mechanisms.shares`). Where the graph is complete the one sum that
opens is over a U of at least ``stay`` clients, and no honest one's vector can be taken out of it:
its masks with the other honest ones would stay. So with c colluding ones at most, the noise of at
least ``stay - c`` honest clients is in it; `noisers` counts on that many, and on itself alone where
the graph is not complete, c is not below 2 t - h - 1, or keys are not signed.

For this the client insists: on the neighbour graph it draws itself, from a nonce that covers all
members' keys; on a threshold of at least two thirds of the holders (its owner may ask for more); on
its own smallest number of clients, among those who take part and those who stayed; on a round's
number above all before; on the round's ``stay``; on one answer to each stage, in order. What it was
told, payload included, is in the masks: clients that were told different things do not add up to
anything.

Revealed: the sum over U, and who is in it. A round that does not end opens nothing, unless a client
that was missing answers it later: then two sums over different sets are known (`server`).

Forward secrecy: private keys go once all roots are known (at once up to `EAGER` members; in a
larger session when all others have been neighbours), and roots are hashed forward after each round.
So what is taken from a device later opens none of its rounds before; in a large session it opens
the session's past rounds as long as the key is kept. From the moment it is taken it opens all of
that device's masks to come, until the next session.

Not covered: what a sum itself tells, in one round or over many with changing sets (add noise before
masking), clients that send wrong values, colluders beyond the bounds, a server that puts its own
keys in the middle where keys are not signed, denial of service, timing and other side channels.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from . import shamir, signing
from .errors import BadMessage, NoSuchSession, Refused
from .graph import FEWEST, MOST_CLIENTS, SHARE, least_threshold, neighbours_of, plan
from .keys import KEY_BYTES, joined, public_key
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
    layout_lists,
    pack,
    rows,
    unpack,
)
from .pairs import (
    MAC_BYTES,
    PAD_BYTES,
    PAIR_BYTES,
    ROOT_BYTES,
    SEED_BYTES,
    advance,
    commitment,
    directory_hash,
    first_root,
    mac,
    pair_secrets,
)
from .ring import Reals, Ring, Words, flatten, layout_of
from .state import ClientState, Stage

SESSION_BYTES = 16
DIGEST_BYTES = 32
# More digits than any value needs; with as many clients as there may be, 127 is still in range.
MOST_FRACTION_BITS = 40
# Up to here all roots are made at once and the private key is gone before the first round.
EAGER = 256
# How far a round's number may be ahead of the last: roots are hashed forward one by one.
MOST_AHEAD = 10_000


@dataclass(frozen=True)
class Policy:
    """What a device insists on, whatever the server says.

    Attributes
    ----------
    signing_key : signs this device's key; None leaves it unsigned
    trusted : public keys of the members by name; None takes keys on the server's word
    fewest : clients, itself included, below which it takes no part
    share : of its holders, the smallest threshold
    colluding : share of the clients of a sum that it takes for the server's, at least
    count_on : whose noise in a sum it counts on: that of ``nobody``, of clients with ``signed``
        keys, of ``anyone``
    entropy : source of random bytes, the operating system's; a test may pass its own
    """

    signing_key: signing.PrivateKey | None = None
    trusted: signing.TrustedKeys | None = None
    fewest: int = FEWEST
    share: float = SHARE
    colluding: float = 0.0
    count_on: str = "signed"
    entropy: shamir.Entropy = secrets.token_bytes

    def __post_init__(self) -> None:
        if not 0.5 < self.share <= 1.0:
            raise ValueError(f"fewest-share={self.share}: use more than 0.5 and at most 1")


class Member:
    """One client in one session; make it with `enter`, carry it over with ``state``."""

    def __init__(self, state: ClientState, policy: Policy) -> None:
        self.state, self.policy = state, policy
        self._ring = Ring()

    # --- once a session ------------------------------------------------------------------------

    @classmethod
    def enter(
        cls, hello: Hello, policy: Policy, before: ClientState | None = None
    ) -> tuple[Member, Advert]:
        """Draw a key for a new session; that ends the session before, if there was one."""
        if len(hello.session) != SESSION_BYTES or not 0 <= hello.index < MOST_CLIENTS:
            raise BadMessage("a session of 16 bytes and an index from 0 are needed")
        if before is not None and before.session == hello.session:
            raise Refused("this session was already entered; a new one has a new name")
        state = ClientState(hello.session, hello.index, hello.name, policy.entropy(KEY_BYTES))
        public, signature = public_key(state.private), b""
        if policy.signing_key is not None:
            content = signing.statement(state.session, state.index, state.name, public)
            signature = signing.sign(policy.signing_key, content)
        return cls(state, policy), Advert(public, signature)

    def meet(self, directory: Directory) -> None:
        """Take everyone's keys, checked, before the first order; once a session.

        The same directory may come again, where the answer to the first was lost.

        Raises
        ------
        Refused
            For another directory than the one that this client has.
        """
        state = self.state
        if directory.session == state.session and state.stage != Stage.DIRECTORY:
            if self._hash_of(directory) != state.directory:
                raise Refused("this client has met others in this session already")
            return
        self._expect(Stage.DIRECTORY, directory.session)
        entries = _entries(directory)
        members, keys = [entry[0] for entry in entries], [entry[2] for entry in entries]
        if len(set(keys)) != len(keys):
            raise BadMessage("a key is listed twice")
        if (state.index, state.name, public_key(state.private)) not in [e[:3] for e in entries]:
            raise Refused("this client is not in the directory, or with another name or key")
        if len(members) < self.policy.fewest:
            raise Refused(
                f"{len(members)} clients; this device wants at least {self.policy.fewest}"
            )
        self._check_signatures(entries)
        state.directory = directory_hash(state.session, entries)
        state.members, state.keys = directory.members, directory.keys
        state.roots, state.epochs = bytearray(ROOT_BYTES * len(members)), [-1] * len(members)
        state.stage = Stage.ORDER
        if len(members) <= EAGER:
            self._make_roots([place for place, m in enumerate(members) if m != state.index])

    def _hash_of(self, directory: Directory) -> bytes:
        return directory_hash(self.state.session, _entries(directory))

    def _check_signatures(self, entries: Iterable[tuple[int, str, bytes, bytes]]) -> None:
        if self.policy.trusted is None:
            return
        seen = set()
        for index, name, key, signature in entries:
            # One device under two indices would hold two shares of everyone.
            if name in seen:
                raise BadMessage(f"client {name} is listed twice")
            seen.add(name)
            content = signing.statement(self.state.session, index, name, key)
            signing.verify(self.policy.trusted, name, content, signature)

    def _make_roots(self, places: Sequence[int]) -> None:
        """Agree with the members at ``places``; forget the private key when none is left."""
        state = self.state
        if not places:
            return
        private = X25519PrivateKey.from_private_bytes(state.private)
        members = np.frombuffer(state.members, "<u4")
        for place in places:
            key = state.keys[KEY_BYTES * place : KEY_BYTES * (place + 1)]
            pair = state.index, int(members[place])
            root = first_root(private, key, state.directory, pair)
            state.roots[ROOT_BYTES * place : ROOT_BYTES * (place + 1)] = root
            state.epochs[place] = 0
        if state.epochs.count(-1) == 1:  # itself
            state.private = state.keys = b""

    # --- masked --------------------------------------------------------------------------------

    def begin(self, order: Order, payload: bytes) -> None:
        """Check a round before anything is computed from data.

        Parameters
        ----------
        payload : 32 bytes, the hash of all that this client was sent beside the order; every
            participant must have been sent the same
        """
        state = self.state
        if state.session != order.session or state.stage == Stage.DIRECTORY:
            raise NoSuchSession("this client is in another session; was it restarted?")
        if not state.number < order.number <= state.number + MOST_AHEAD:
            raise Refused(
                f"round {order.number} of this session is not new, or more than {MOST_AHEAD} ahead"
            )
        participants = unpack(order.participants, "participants")
        strange = order.participants != state.members and not set(participants).issubset(
            unpack(state.members, "members")
        )
        if state.index not in participants or strange:
            raise Refused("this client is not among the participants, or a stranger is")
        if len(participants) < self.policy.fewest:
            raise Refused(
                f"{len(participants)} clients; this device wants at least {self.policy.fewest}"
            )
        self._ring = self._checked_ring(order, len(participants))
        # Whatever is left of a round that did not end is gone, its seeds too.
        self._advance(unpack(state.peers, "peers"), state.number + 1)
        state.forget_round()
        if not 0 <= order.stay <= len(participants):
            raise Refused(f"{order.stay} of {len(participants)} clients cannot stay")
        state.stay = order.stay
        state.number, state.threshold = order.number, self._threshold(order, len(participants))
        peers = neighbours_of(
            state.index, participants, order.neighbours, graph_nonce(state.directory)
        )
        state.participants, state.peers = order.participants, pack(peers)
        state.context = context_of(order, state.directory, payload)

    def _checked_ring(self, order: Order, clients: int) -> Ring:
        if not 0 <= order.fraction_bits <= MOST_FRACTION_BITS:
            raise Refused(f"fraction_bits={order.fraction_bits}: use 0 to {MOST_FRACTION_BITS}")
        if not math.isfinite(order.largest):
            raise Refused("the declared range is no number")
        return Ring(order.fraction_bits, clients, order.largest)

    def _threshold(self, order: Order, clients: int) -> int:
        """Return t, no smaller than this device wants; the same for the number of neighbours."""
        if order.neighbours < plan(clients).neighbours:
            raise Refused(
                f"{order.neighbours} neighbours among {clients} clients; at least "
                f"{plan(clients).neighbours} are needed"
            )
        holders = plan(clients, order.neighbours).neighbours + 1
        if not least_threshold(holders, self.policy.share) <= order.threshold <= holders:
            raise Refused(
                f"threshold {order.threshold} of {holders} holders; this device wants at least "
                f"{least_threshold(holders, self.policy.share)}"
            )
        return order.threshold

    def noisers(self, colluding: float = 0.0, *, anyone: bool = False, owner: bool = True) -> int:
        """Return how many clients' noise, its own included, is in any sum of this round that opens.

        Parameters
        ----------
        colluding : share of the clients that the run declares as the server's; the larger of this
            and the owner's counts, rounded down to whole clients
        anyone : count on every client that takes part, whatever the owner says: in a simulation
        owner : whether the owner's doubt counts. Without it, and with ``anyone``: the most that any
            honest client counts on, whose share of the noise is the smallest
        """
        state, count_on = self.state, "anyone" if anyone else self.policy.count_on
        if count_on == "nobody" or (count_on == "signed" and self.policy.trusted is None):
            return 1
        clients = len(state.participants) // 4
        doubt = max(colluding, self.policy.colluding) if owner else colluding
        bad = math.floor(doubt * clients + 1e-9)
        complete = len(state.peers) // 4 == clients - 1
        if not complete or bad >= 2 * state.threshold - clients - 1:
            return 1
        return max(1, state.stay - bad)

    def bind(self, terms: bytes) -> None:
        """Bind the round to what all participants must also have alike, before `mask`."""
        state = self.state
        if not state.context or state.stage != Stage.ORDER:
            raise Refused("no round was begun, or its vector was already masked")
        state.context = hashlib.sha256(joined("terms", state.context, terms)).digest()

    def mask(
        self, arrays: Mapping[str, Reals], noise: NDArray[np.int64] | None = None
    ) -> tuple[Words, Masked, int]:
        """Return the masked vector, what goes with it, and how many values were clipped.

        ``noise`` is added first, in units of the ring.
        """
        state = self.state
        if not state.context or state.stage != Stage.ORDER:
            raise Refused("no round was begun, or its vector was already masked")
        peers = unpack(state.peers, "peers")
        pairs = self._pair_secrets(peers)
        secret, shares = shamir.draw(len(peers) + 1, state.threshold, self.policy.entropy)
        vector, clips = flatten(arrays, self._ring)
        if noise is not None:
            vector = vector + noise.view(np.uint64)  # modulo 2^64, as the sum
        seeds = [pair[:SEED_BYTES] for pair in pairs]
        add_masks(
            Masker(vector.size), vector, state.index, secret, dict(zip(peers, seeds, strict=True))
        )
        mine = int(np.searchsorted(peers, state.index))  # its place among the holders
        state.own_share, state.stage = shares[mine].tobytes(), Stage.ROLL
        pads = _pads(pairs, [peer > state.index for peer in peers])
        masked = Masked(
            *layout_lists(layout_of(arrays)),
            sealed=(np.delete(shares, mine, axis=0) ^ pads).tobytes(),
            share_commitments=b"".join([commitment(share.tobytes()) for share in shares]),
            seed_commitments=b"".join([commitment(seed) for seed in seeds]),
        )
        return vector, masked, clips

    # --- consistency ---------------------------------------------------------------------------

    def agree(self, roll: Roll) -> Agreed:
        """Give this client's word on who is in the sum, to each neighbour in it; once a round."""
        self._expect(Stage.ROLL, roll.session, roll.number)
        state = self.state
        survivors = set(unpack(roll.survivors, "survivors"))
        if strangers := sorted(survivors - set(unpack(state.participants, "participants"))):
            raise BadMessage(f"clients {strangers} are in the sum, who take no part")
        fewest = max(self.policy.fewest, state.stay)
        if state.index not in survivors or len(survivors) < fewest:
            raise Refused(
                f"a sum of {len(survivors)} clients, perhaps without this one; this device wants "
                f"at least {fewest}"
            )
        peers = unpack(state.peers, "peers")
        kept = [peer for peer in peers if peer in survivors]
        if len(kept) + 1 < state.threshold:
            raise Refused(
                f"{len(kept) + 1} of this client's holders are left; threshold {state.threshold}"
            )
        state.survivors, state.stage = roll.survivors, Stage.QUESTION
        content = self._word()
        macs = [mac(root, state.index, content) for root in self._roots(kept)]
        return Agreed(b"".join(macs))

    def _word(self) -> bytes:
        """Return what holders must agree on."""
        return self.state.context + hashlib.sha256(self.state.survivors).digest()

    # --- unmask --------------------------------------------------------------------------------

    def unmask(self, question: Question) -> Opened:
        """Give one secret a neighbour, where enough holders agree; then forget the round."""
        self._expect(Stage.QUESTION, question.session, question.number)
        state = self.state
        survivors = set(unpack(state.survivors, "survivors"))
        peers = unpack(state.peers, "peers")
        kept = [peer for peer in peers if peer in survivors]
        sealed = rows(question.sealed, len(kept), PAD_BYTES, "sealed shares")
        self._check_words(question, kept)
        pairs = dict(zip(peers, self._pair_secrets(peers), strict=True))
        pads = _pads([pairs[peer] for peer in kept], [peer < state.index for peer in kept])
        found = np.frombuffer(b"".join(sealed), np.uint8).reshape(-1, PAD_BYTES) ^ pads
        shares = [row.tobytes() for row in found]
        shares.insert(int(np.searchsorted(kept, state.index)), state.own_share)
        seeds = [pairs[peer][:SEED_BYTES] for peer in peers if peer not in survivors]
        self._advance(peers, state.number + 1)
        state.forget_round()
        return Opened(b"".join(shares), b"".join(seeds))

    def _check_words(self, question: Question, kept: Sequence[int]) -> None:
        signers = unpack(question.signers, "signers")
        macs = rows(question.macs, len(signers), MAC_BYTES, "words")
        if strangers := sorted(set(signers) - set(kept)):
            raise BadMessage(f"words of clients {strangers}, who are no neighbours in the sum")
        content = self._word()
        expected = [
            mac(root, signer, content)
            for signer, root in zip(signers, self._roots(signers), strict=True)
        ]
        right = 1 + len(signers)  # its own
        if not hmac.compare_digest(b"".join(expected), question.macs):
            right = 1 + sum(map(hmac.compare_digest, expected, macs))
        if right < self.state.threshold:
            raise Refused(
                f"{right} of this client's holders agree on who is in the sum; "
                f"threshold {self.state.threshold}"
            )

    # --- roots ---------------------------------------------------------------------------------

    def _pair_secrets(self, peers: Sequence[int]) -> list[bytes]:
        self._advance(peers, self.state.number)
        context = self.state.context
        return [pair_secrets(root, context) for root in self._roots(peers)]

    def _places(self, peers: Sequence[int]) -> list[int]:
        found: list[int] = np.searchsorted(np.frombuffer(self.state.members, "<u4"), peers).tolist()
        return found

    def _roots(self, peers: Sequence[int]) -> list[bytes]:
        whole = bytes(self.state.roots)
        return [whole[ROOT_BYTES * p : ROOT_BYTES * (p + 1)] for p in self._places(peers)]

    def _advance(self, peers: Sequence[int], number: int) -> None:
        """Hash the roots with ``peers`` forward to a round; earlier ones are lost."""
        state, places = self.state, self._places(peers)
        self._make_roots([place for place in places if state.epochs[place] < 0])
        roots, epochs = state.roots, state.epochs
        for place in places:
            if epochs[place] < number:
                start = ROOT_BYTES * place
                root = bytes(roots[start : start + ROOT_BYTES])
                roots[start : start + ROOT_BYTES] = advance(root, number - epochs[place])
                epochs[place] = number

    def _expect(self, stage: Stage, session: bytes, number: int | None = None) -> None:
        state = self.state
        if session != state.session:
            raise NoSuchSession("this client is in another session; was it restarted?")
        if number is not None and number != state.number:
            raise Refused(f"this client is in round {state.number}, not {number}")
        if state.stage != stage:
            waits, came = state.stage.name.lower(), stage.name.lower()
            raise Refused(f"this client waits for the {waits}, not the {came}")


def _entries(directory: Directory) -> list[tuple[int, str, bytes, bytes]]:
    """Return index, name, key and signature of every member."""
    members = unpack(directory.members, "members")
    keys = rows(directory.keys, len(members), KEY_BYTES, "keys")
    entries = list(zip(members, directory.names, keys, directory.signatures, strict=False))
    if not len(entries) == len(directory.names) == len(directory.signatures) == len(members):
        raise BadMessage("the directory's lists differ in length")
    return entries


def graph_nonce(directory: bytes) -> bytes:
    """Return what the neighbour graph of a session is drawn from.

    All members' keys are in it. Not the round's number, which the server chooses, and could choose
    until the graph suits it.
    """
    return joined("graph", directory)


def context_of(order: Order, directory: bytes, payload: bytes) -> bytes:
    """Return the hash of everything that the participants of a round must have been told alike."""
    if len(payload) != DIGEST_BYTES:
        raise ValueError(f"a payload's hash has {DIGEST_BYTES} bytes, not {len(payload)}")
    told = (order.number, order.group, hashlib.sha256(order.participants).digest())
    scale = (order.fraction_bits, float(order.largest).hex())
    terms = (order.neighbours, order.threshold, *scale, order.stay)
    content = joined("trellis secagg 2", "round", directory, *told, *terms, payload)
    return hashlib.sha256(content).digest()


def self_seed(secret: bytes) -> bytes:
    """Return the seed of a client's own mask from its shared secret b_u."""
    return hashlib.sha256(joined("trellis secagg 2", "self", secret)).digest()


def add_masks(
    masker: Masker, vector: Words, index: int, secret: bytes, seeds: Mapping[int, bytes]
) -> None:
    """Add a client's masks to its vector, in place: its own, and one for each neighbour."""
    masker.add(vector, self_seed(secret))
    for peer, seed in seeds.items():
        (masker.add if peer > index else masker.subtract)(vector, seed)


def _pads(pairs: Sequence[bytes], upward: Sequence[bool]) -> NDArray[np.uint8]:
    """Return a pad a pair (k, 16): from the lower index to the higher, or the way back."""
    whole = np.frombuffer(b"".join(pairs), np.uint8).reshape(-1, PAIR_BYTES)
    up = np.array(upward, dtype=bool)[:, None]
    middle = SEED_BYTES + PAD_BYTES
    return np.where(up, whole[:, SEED_BYTES:middle], whole[:, middle:])
