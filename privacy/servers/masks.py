"""Zero-sum masks between the servers that send to one server.

Server p combines  w_p = a_pp psi_p + sum_{m in N_p} a_mp psi_m  ([RS]_ (8) without noise, N_p its
neighbours without p). It needs the sum and no single psi_m. So for every receiver p any two senders
m < l of N_p agree on a seed s (X25519; HKDF-SHA256 bound to session, round, receiver, m and l), and

    message_mp = encode(a_mp psi_m) + sum_{l > m} PRG(s_mlp) - sum_{l < m} PRG(s_mlp)   (mod 2^64).

The masks cancel word for word in p's sum: nothing of them is left in w_p, which is off by the
ring's rounding only, below 1e-12 for |psi| <= 1e3 and up to 100 servers.

Adversary: servers that follow the protocol and look at everything they get (honest but curious).

- A single neighbour p of m learns sum_{m != p} a_mp psi_m, which is the sum that w_p is made of,
  and nothing else: each message by itself is uniform noise to it.
- Several servers that put together what they got learn the solution of their sums: p with all but
  one of its neighbours learns the psi of that one; two receivers that have the same two honest
  neighbours in different proportions learn both.
- The same holds for whoever reads the links. All messages of a round together give P sums of P
  vectors, so links between servers must be encrypted.
- **A receiver with one neighbour** learns that neighbour's psi_m: there is nobody to agree with,
  masks cannot help and are refused. Noise must stay on such an edge.

Not covered: a relay that exchanges keys for its own, as keys are not signed; a server whose key is
taken, which opens its masks of the whole run, since a key pair serves one run; servers that send
wrong values; a sender that vanishes after the others have masked, without whom the sum is lost;
what w_p itself tells, in one round or over many. No epsilon is claimed: this is no differential
privacy.

.. [RS] E. Rizk, A. H. Sayed, A graph federated architecture with privacy preserving learning.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trellis.privacy.secagg.errors import BadMessage, Refused
from trellis.privacy.secagg.keys import KEY_BYTES, Agreement, Scope, public_key
from trellis.privacy.secagg.masks import SEED_BYTES, Masker
from trellis.privacy.secagg.ring import Reals, Ring, Words

# 99 senders are off by at most 99 * 2^-47 < 7.1e-13; one bit less would exceed 1e-12, one more
# would not hold 99 terms of 1e3 below 2^63.
FRACTION_BITS = 46
FEWEST_SENDERS = 2


class ServerMasks:
    """One server's side of the masks of a run.

    Parameters
    ----------
    index : this server's
    session : what all servers of the run know it by; public
    entropy : where the 32 bytes of the private key come from, the operating system; a test may pass
        its own
    """

    def __init__(
        self, index: int, session: bytes, entropy: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.index, self._session = index, session
        private = entropy(KEY_BYTES)
        self.public = public_key(private)
        self._agreement = Agreement(private, _identity(index), Scope(session, 0))
        self._known: dict[int, bytes] = {}
        self._roots: dict[int, bytes] = {}
        self._masked: tuple[int, set[int]] = (0, set())

    def meet(self, publics: Mapping[int, bytes]) -> None:
        """Take the public keys of other servers; a server that comes with a new key is met anew."""
        for peer, public in publics.items():
            if peer != self.index and self._known.get(peer) != public:
                try:
                    root = self._agreement.seed(_identity(peer), public)
                except BadMessage as error:
                    raise BadMessage(f"the mask key of server {peer} is no valid key") from error
                self._known[peer], self._roots[peer] = public, root

    def message(
        self, server_round: int, receiver: int, senders: Sequence[int], term: Reals
    ) -> Words:
        """Return a_mp psi_m in the ring under this server's masks, for ``receiver``.

        Parameters
        ----------
        server_round : at least 1; a round is masked once
        receiver : p
        senders : N_p, every server that sends to p, this one included
        term : (M,), a_mp psi_m

        Raises
        ------
        Refused
            Where there is nobody to share masks with, the key of a sender is not known, or
            something else was already masked for this receiver and round: under the same mask the
            difference of the two would be in the clear.
        OverflowError, ValueError
            Where an entry of ``term`` is out of the ring's range or not finite; names it.
        """
        others = sorted(set(senders) - {self.index})
        self._check(server_round, receiver, others)
        what = f"what server {self.index} sends to server {receiver}"
        words = _ring(len(others) + 1).encode(term, what)
        masker = Masker(words.size)
        for other in others:
            seed = self._seed(server_round, receiver, other)
            (masker.add if self.index < other else masker.subtract)(words, seed)
        self._masked[1].add(receiver)
        return words

    def _check(self, server_round: int, receiver: int, others: Sequence[int]) -> None:
        where = f"round {server_round}, server {self.index} to server {receiver}"
        if len(others) + 1 < FEWEST_SENDERS:
            raise Refused(f"{where}: it is the only sender, masks cannot hide it; add noise")
        unknown = [other for other in others if other not in self._roots]
        if unknown:
            raise Refused(f"{where}: no key of server {unknown[0]}; exchange keys before masking")
        if server_round > self._masked[0]:
            self._masked = (server_round, set())
        if server_round < self._masked[0] or receiver in self._masked[1]:
            raise Refused(
                f"{where}: already masked (the last round was {self._masked[0]}); a second vector "
                "under one mask would tell the difference. Make new servers, with new keys"
            )

    def _seed(self, server_round: int, receiver: int, other: int) -> bytes:
        pair = sorted((self.index, other))
        info = Scope(self._session, server_round).info("server mask", receiver, *pair)
        return HKDF(hashes.SHA256(), SEED_BYTES, None, info).derive(self._roots[other])


class NoMasks:
    """What masks would cover, in the ring and bare: the same sums, and nobody is protected.

    For arithmetic in which no message leaves the process.
    """

    public = b""

    def meet(self, publics: Mapping[int, bytes]) -> None:
        """Agree with nobody."""

    def message(
        self, server_round: int, receiver: int, senders: Sequence[int], term: Reals
    ) -> Words:
        """Return a_mp psi_m in the ring; see `ServerMasks.message`."""
        return _ring(len(senders)).encode(term, f"a server's term for server {receiver}")


def open_sum(messages: Mapping[int, Words], receiver: int, size: int) -> Reals:
    """Return sum_m a_mp psi_m, (M,), from the messages of all of p's neighbours.

    Adversary and what is not covered: see the module. A message that is missing leaves the others'
    masks in the sum, which is noise then; the caller must have them all.

    Parameters
    ----------
    messages : words by sender
    receiver : p, for error messages
    size : M
    """
    total = np.zeros(size, np.uint64)
    for sender in sorted(messages):
        words = messages[sender]
        if words.dtype != np.uint64 or words.shape != (size,):
            raise BadMessage(
                f"server {sender} sent server {receiver} {words.dtype} of shape {words.shape}; "
                f"{size} masked words (uint64) are needed"
            )
        total += words  # modulo 2^64
    return _ring(len(messages)).decode(total)


def _ring(senders: int) -> Ring:
    return Ring(FRACTION_BITS, senders)


def _identity(index: int) -> tuple[int, str]:
    return index, f"server {index}"
