"""The client's side of secure aggregation, without any transport.

    masked_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)   (mod 2^64)

over the neighbours v of u that sent shares. In the sum over all clients the pair masks cancel; the
server removes PRG(b_u) of those whose vector came, from shares of b_u, and the pair masks of those
whose vector did not, from shares of their mask keys.

Adversary: a server that follows the protocol and looks at everything, together with up to t - 1 of
any client's holders (see `graph`); also a server that lies about who dropped out, together with up
to 2 t - h - 1 of the h holders, given signed keys. For that this class refuses: it never gives
shares of both secrets of one client, in however many requests; it gives none where fewer than t of
its neighbourhood are said to have stayed; it masks one vector a round; it answers no stage twice,
out of order, of an earlier round or of another session.

Revealed: the sum over the clients whose vector came, and who they are. Not covered: what a sum
itself tells (add noise before masking), clients that send wrong values, server and colluding
clients beyond the bounds, a server that puts its own keys in the middle where keys are not signed,
denial of service, timing and other side channels.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from . import signing
from .errors import BadMessage, Refused
from .keys import KEY_BYTES, Agreement, Scope, public_key, seal, unseal
from .masks import SEED_BYTES, Masker
from .messages import Advert, Delivery, Directory, Hello, Question, Sealed, Shares
from .ring import Layout, Reals, Ring, Words, flatten, layout_of
from .shamir import SHARE_BYTES, Entropy, commitment, split
from .state import ClientState, Peer, Secret, Stage

SESSION_BYTES = 16
# A sum of two tells each of the two what the other sent.
FEWEST = 3


@dataclass(frozen=True)
class Policy:
    """What a device insists on, whatever the server says.

    Attributes
    ----------
    signing_key : signs this device's keys; None leaves them unsigned
    trusted : public keys of the peers by name; None takes peers' keys on the server's word
    fewest : clients in its neighbourhood, itself included, below which it takes no part
    entropy : source of random bytes, the operating system's; a test may pass its own
    """

    signing_key: signing.PrivateKey | None = None
    trusted: signing.TrustedKeys | None = None
    fewest: int = FEWEST
    entropy: Entropy = secrets.token_bytes


class ClientRound:
    """One client in one round; make it with `begin`, carry it over with ``state``."""

    def __init__(self, state: ClientState, policy: Policy) -> None:
        self.state, self.policy = state, policy
        self._scope = Scope(state.session, state.number)

    @classmethod
    def begin(
        cls, hello: Hello, policy: Policy, before: ClientState | None = None
    ) -> tuple[ClientRound, Advert]:
        """Draw this round's keys; ``before`` is the state of the round before, where there is."""
        if len(hello.session) != SESSION_BYTES or hello.number < 1 or hello.index < 0:
            raise BadMessage("a session of 16 bytes, a round from 1 and an index from 0 are needed")
        if before is not None and before.session != hello.session:
            raise Refused("this client already takes part in another session")
        if before is not None and hello.number <= before.number:
            raise Refused(f"round {hello.number} of this session was already begun")
        if hello.clients < policy.fewest:
            raise Refused(f"{hello.clients} clients; this device wants at least {policy.fewest}")
        Ring(hello.fraction_bits, hello.clients)
        state = ClientState(
            *(hello.session, hello.number, hello.index, hello.name),
            *(hello.clients, hello.fraction_bits),
            cipher_private=policy.entropy(KEY_BYTES),
            mask_private=policy.entropy(KEY_BYTES),
        )
        made = cls(state, policy)
        return made, made._advert()

    def _advert(self) -> Advert:
        state, key = self.state, self.policy.signing_key
        public = public_key(state.cipher_private), public_key(state.mask_private)
        signature = b""
        if key is not None:
            content = signing.statement(self._scope, state.index, state.name, *public)
            signature = signing.sign(key, content)
        return Advert(*public, signature)

    def share(self, directory: Directory) -> Sealed:
        """Check the neighbours; share both secrets among them and oneself."""
        self._expect(Stage.ADVERTISED, directory.session, directory.number)
        state, entropy = self.state, self.policy.entropy
        self._check(directory)
        me = (state.index, state.name)
        agreement = Agreement(state.cipher_private, me, self._scope)
        state.threshold, state.self_seed = directory.threshold, entropy(SEED_BYTES)
        holders = [index + 1 for index in (state.index, *directory.peers)]
        self_shares = split(state.self_seed, holders, state.threshold, entropy)
        key_shares = split(state.mask_private, holders, state.threshold, entropy)
        sealed = []
        for index, name, cipher_key, mask_key in zip(
            *(directory.peers, directory.names, directory.cipher_keys, directory.mask_keys),
            strict=True,
        ):
            seal_key, open_key = agreement.seals((index, name), cipher_key)
            sealed.append(seal(seal_key, self_shares[index + 1] + key_shares[index + 1]))
            state.peers[index] = Peer(name, mask_key, open_key)
        state.own_share = self_shares[state.index + 1]
        state.cipher_private, state.stage = b"", Stage.SHARED
        return Sealed(commitment(state.self_seed), list(directory.peers), sealed)

    def _check(self, directory: Directory) -> None:
        state, peers = self.state, directory.peers
        lists = (directory.names, directory.cipher_keys, directory.mask_keys, directory.signatures)
        if any(len(entries) != len(peers) for entries in lists):
            raise BadMessage("the directory's lists differ in length")
        if len({state.index, *peers}) != len(peers) + 1 or min(peers, default=0) < 0:
            raise BadMessage("a neighbour is listed twice, or as oneself")
        own = self._own_public()
        if len({*directory.cipher_keys, *directory.mask_keys, *own}) != 2 * len(peers) + 2:
            raise BadMessage("a key is listed twice")
        holders = len(peers) + 1
        if holders < max(self.policy.fewest, directory.threshold):
            raise Refused(
                f"{holders} clients in this neighbourhood; threshold {directory.threshold}, and "
                f"this device wants at least {self.policy.fewest}"
            )
        if 2 * directory.threshold <= holders or holders > state.clients:
            raise Refused(
                f"threshold {directory.threshold} of {holders} holders: more than half are needed"
            )
        if self.policy.trusted is not None:
            for index, name, *public, signature in zip(peers, *lists, strict=True):
                content = signing.statement(self._scope, index, name, *public)
                signing.verify(self.policy.trusted, name, content, signature)

    def _own_public(self) -> tuple[bytes, bytes]:
        return public_key(self.state.cipher_private), public_key(self.state.mask_private)

    def deliver(self, delivery: Delivery) -> None:
        """Open the shares that neighbours sealed; those who sent none have dropped out."""
        self._expect(Stage.SHARED, delivery.session, delivery.number)
        state, peers = self.state, delivery.peers
        if len(delivery.sealed) != len(peers) or len(set(peers)) != len(peers):
            raise BadMessage("the delivery's lists contradict each other")
        if strangers := sorted(set(peers) - set(state.peers)):
            raise BadMessage(f"shares of clients {strangers}, who are no neighbours")
        if len(peers) + 1 < max(state.threshold, self.policy.fewest):
            raise Refused(f"{len(peers) + 1} clients sent shares; threshold {state.threshold}")
        for index, sealed in zip(peers, delivery.sealed, strict=True):
            peer = state.peers[index]
            content = unseal(peer.open_key, sealed, peer.name)
            if len(content) != 2 * SHARE_BYTES:
                raise BadMessage(f"the shares of client {peer.name} have a wrong length")
            state.shares[index] = (content[:SHARE_BYTES], content[SHARE_BYTES:])
        state.peers = {
            index: Peer(peer.name, peer.mask_key, b"")
            for index, peer in state.peers.items()
            if index in state.shares
        }
        state.stage = Stage.DELIVERED

    def mask(self, arrays: Mapping[str, Reals]) -> tuple[Words, Layout]:
        """Return the masked vector of ``arrays``, once a round, and its layout."""
        state = self.state
        self._expect(Stage.DELIVERED, state.session, state.number)
        vector = flatten(arrays, Ring(state.fraction_bits, state.clients))
        agreement = Agreement(state.mask_private, (state.index, state.name), self._scope)
        masker = Masker(vector.size)
        masker.add(vector, state.self_seed)
        for index, peer in state.peers.items():
            seed = agreement.seed((index, peer.name), peer.mask_key)
            (masker.add if index > state.index else masker.subtract)(vector, seed)
        state.mask_private = state.self_seed = b""
        state.stage = Stage.MASKED
        return vector, layout_of(arrays)

    def unmask(self, question: Question) -> Shares:
        """Give one share a neighbour: of the self seed, or of the mask key of the dropped."""
        self._expect(Stage.MASKED, question.session, question.number)
        state = self.state
        wanted = [(index, Secret.SELF_SEED) for index in question.survivors]
        wanted += [(index, Secret.MASK_KEY) for index in question.dropped]
        if strangers := sorted({index for index, _ in wanted} - set(state.peers)):
            raise BadMessage(f"shares of clients {strangers} are asked for, who sent none")
        if len(set(question.survivors)) + 1 < max(state.threshold, self.policy.fewest):
            raise Refused(
                f"{len(set(question.survivors)) + 1} clients stayed in this neighbourhood; "
                f"threshold {state.threshold}"
            )
        revealed = dict(state.revealed)
        for index, secret in wanted:
            if revealed.setdefault(index, secret) != secret:
                raise Refused(
                    f"both secrets of client {state.peers[index].name} are asked for; "
                    "that would unmask its vector"
                )
        state.revealed = revealed
        return Shares(
            [state.index, *question.survivors],
            [state.own_share, *(state.shares[index][0] for index in question.survivors)],
            list(question.dropped),
            [state.shares[index][1] for index in question.dropped],
        )

    def _expect(self, stage: Stage, session: bytes, number: int) -> None:
        state = self.state
        if session != state.session or number != state.number:
            raise Refused(f"this client is in round {state.number}, of another session or round")
        if state.stage != stage:
            raise Refused(f"this client has already {state.stage} or not yet {stage}")
