"""What servers tell each other: the combination step behind one narrow interface.

P servers, server m with psi_m (M,) after its clients' updates, combine over a graph with weights
A (P, P), a_mp the weight of m at p and N_p the neighbours of p without p:

    w_p = a_pp (psi_p + g_pp) + sum_{m in N_p} a_mp (psi_m + g_mp)                    [RS]_ (8)

A `Server` makes messages for its neighbours from its own psi, gets theirs, combines; A is public
and is given at every call, as servers may fail between rounds. Nothing else knows another server's
psi: here a `Post` carries the messages within one process, elsewhere a network does.

    none     every g = 0: neighbour p sees psi_m
    iid      g_mp independent on each edge, g_pp = 0: p sees psi_m + g_mp
    hybrid   g_mp = g_m, a_pp g_pp = -(1 - a_pp) g_p (24): p sees psi_m + g_m
    masked   every g = 0 and p sees uniform words, but where m is p's only neighbour g_mp = g_m,
             taken back by a_mm g_mm = -(sum of a_mp over such p) g_m: p sees psi_m + g_m

Every coordinate of a g is Laplace with deviation sigma_g. For `hybrid` and `masked` the noise of
the network sums to zero, (25). With `iid` a server's own term stays clean: nobody else sees it.

Adversary: a neighbour, honest but curious. One noisy message is one Laplace release of psi_m
(`privacy.mechanisms.laplace`); `iid` makes as many as m has neighbours, and neighbours that compare
them average the noise away. What `hybrid` does not cover is in `privacy.mechanisms.homomorphic`,
and it holds for the noisy edges of `masked` as well: p with all else that went into w_m finds
psi_m. Masks: `privacy.servers.masks`. Not covered by any: what messages and models tell over
many rounds; the process that a `Post` lives in, which sees everything.

.. [RS] E. Rizk, A. H. Sayed, A graph federated architecture with privacy preserving learning.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.privacy.mechanisms.laplace import laplace_noise
from trellis.privacy.mechanisms.noise import NoiseSource
from trellis.privacy.servers.masks import FEWEST_SENDERS, NoMasks, ServerMasks, open_sum

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Message = NDArray[Any]
Noise = Callable[[int, int], NoiseSource]
"""The noise of (server, round), however often one asks: `trellis.strategies.server_graph.noise`."""


class Server:
    """One server, m or p by ``index``, without privacy, [RS] (5); others say what they change."""

    method = "none"

    def __init__(self, index: int) -> None:
        self.index = index

    def use_noise(self, deviation: float) -> None:
        """Take sigma_g, where it is known only when the model's size is; before the first round."""

    def hello(self) -> bytes:
        """Return the public key that other senders to the same server need; empty for none."""
        return b""

    def meet(self, hellos: Mapping[int, bytes]) -> None:
        """Take what other servers said in `hello`."""

    def messages(self, server_round: int, psi: Vector, weights: Matrix) -> dict[int, Message]:
        """Return what this server sends, by receiver: psi_m (M,), however disguised.

        ``weights`` is the A of this round; rows of servers that are down have no neighbours.
        """
        return {p: psi.copy() for p in neighbours(weights, self.index)}

    def combine(
        self, server_round: int, psi: Vector, received: Mapping[int, Message], weights: Matrix
    ) -> Vector:
        """Return w_p (M,), [RS] (8), from this server's psi and all its neighbours' messages."""
        wrong = set(neighbours(weights, self.index)) ^ set(received)
        if wrong:
            how = "came from no neighbour" if min(wrong) in received else "is missing"
            raise ValueError(
                f"round {server_round}, server {self.index}: the message of server {min(wrong)} "
                f"{how}; give the weights of the servers that are up"
            )
        return self._own(server_round, psi, weights) + self._others(psi.size, received, weights)

    def _own(self, server_round: int, psi: Vector, weights: Matrix) -> Vector:
        """Return a_pp (psi_p + g_pp)."""
        return weights[self.index, self.index] * psi

    def _others(self, size: int, received: Mapping[int, Message], weights: Matrix) -> Vector:
        """Return sum_{m != p} a_mp (psi_m + g_mp); by sender, so that bits do not vary."""
        total = np.zeros(size)
        for sender in sorted(received):
            message, came = received[sender], f"server {sender} sent server {self.index}"
            if message.dtype != np.float64 or message.shape != (size,):
                raise ValueError(f"{came} {message.dtype}{message.shape}, not float64({size},)")
            if not np.isfinite(message).all():
                raise ValueError(f"{came} a model that is not finite; lower the step size")
            total += weights[sender, self.index] * message
        return total


class NoisyServer(Server):
    """A server that draws Laplace noise.

    Parameters
    ----------
    index : m
    deviation : sigma_g >= 0, the standard deviation of every coordinate of g
    noise : where it comes from
    """

    def __init__(self, index: int, deviation: float, noise: Noise) -> None:
        super().__init__(index)
        self.use_noise(deviation)
        self._noise = noise
        self._drawn: tuple[int, Vector] | None = None

    def use_noise(self, deviation: float) -> None:
        """Take sigma_g."""
        if not (deviation >= 0.0 and math.isfinite(deviation)):
            raise ValueError(f"sigma_g={deviation}: must be finite and >= 0")
        self.deviation = deviation

    def _draws(self, server_round: int, count: int, size: int) -> Matrix:
        """Return (count, M) draws; the round's noise starts anew, however often one asks."""
        if self.deviation == 0.0 or count * size == 0:
            return np.zeros((count, size))
        scale = self.deviation / math.sqrt(2.0)  # the variance is 2 b^2
        source = self._noise(self.index, server_round)
        return laplace_noise(source, count * size, scale).reshape(count, size)

    def _draw(self, server_round: int, size: int) -> Vector:
        """Draw g_m for this round's messages and keep it for the own combination."""
        self._drawn = server_round, self._draws(server_round, 1, size)[0]
        return self._drawn[1]

    def _kept(self, server_round: int) -> Vector:
        if self._drawn is None or self._drawn[0] != server_round:
            raise ValueError(
                f"round {server_round}, server {self.index}: make this round's messages first; "
                "combining needs their noise"
            )
        return self._drawn[1]


class IidServer(NoisyServer):
    """Independent noise on every edge: the standard scheme that [RS] compares with."""

    method = "iid"

    def messages(self, server_round: int, psi: Vector, weights: Matrix) -> dict[int, Message]:
        """Return psi_m + g_mp by receiver p."""
        others = neighbours(weights, self.index)
        noise = self._draws(server_round, len(others), psi.size)
        return {p: psi + g for p, g in zip(others, noise, strict=True)}


class HybridServer(NoisyServer):
    """Graph-homomorphic noise, [RS] (24): one draw a round, taken back in the own combination."""

    method = "hybrid"

    def messages(self, server_round: int, psi: Vector, weights: Matrix) -> dict[int, Message]:
        """Return psi_m + g_m for every neighbour."""
        noisy = psi + self._draw(server_round, psi.size)
        return {p: noisy.copy() for p in neighbours(weights, self.index)}

    def _own(self, server_round: int, psi: Vector, weights: Matrix) -> Vector:
        # a_pp g_pp = -(1 - a_pp) g_p, (24), with 1 - a_pp as the weights that noise was sent with:
        # then (25) holds whatever the rounding of A.
        sent = weights[self.index, neighbours(weights, self.index)].sum()
        return weights[self.index, self.index] * psi - sent * self._kept(server_round)


class MaskedServer(NoisyServer):
    """Zero-sum masks; noise only to a server that has no other neighbour, and then sigma_g > 0.

    All such receivers get the same draw, as in (24): several that compare gain nothing. The keys
    in ``masks`` leave no trace in w_p.
    """

    method = "masked"

    def __init__(
        self, index: int, deviation: float, noise: Noise, masks: ServerMasks | NoMasks
    ) -> None:
        super().__init__(index, deviation, noise)
        self._masks = masks

    def hello(self) -> bytes:
        """Return this server's public key."""
        return self._masks.public

    def meet(self, hellos: Mapping[int, bytes]) -> None:
        """Agree with the other senders."""
        self._masks.meet(hellos)

    def messages(self, server_round: int, psi: Vector, weights: Matrix) -> dict[int, Message]:
        """Return masked words by receiver; psi_m + g_m where this is the only sender."""
        bare = self._bare(weights)
        if bare and self.deviation == 0.0:
            raise ValueError(
                f"server {bare[0]} has no neighbour but server {self.index}: masks cannot hide "
                f"psi from it. Set sigma_g > 0 for this edge, or add an edge to server {bare[0]}"
            )
        noisy = psi + self._draw(server_round, psi.size) if bare else psi
        sent: dict[int, Message] = {p: noisy.copy() for p in bare}
        for p in set(neighbours(weights, self.index)) - set(bare):
            term = weights[self.index, p] * psi
            sent[p] = self._masks.message(server_round, p, neighbours(weights, p), term)
        return sent

    def _bare(self, weights: Matrix) -> list[int]:
        """Return the receivers that hear from this server only."""
        near = neighbours(weights, self.index)
        return [p for p in near if len(neighbours(weights, p)) < FEWEST_SENDERS]

    def _own(self, server_round: int, psi: Vector, weights: Matrix) -> Vector:
        own = weights[self.index, self.index] * psi
        bare = self._bare(weights)
        if bare and self.deviation:  # what was added to the network is taken out of it, as in (25)
            own -= weights[self.index, bare].sum() * self._kept(server_round)
        return own

    def _others(self, size: int, received: Mapping[int, Message], weights: Matrix) -> Vector:
        if len(received) < FEWEST_SENDERS:
            return super()._others(size, received, weights)
        return open_sum(received, self.index, size)


def servers(
    method: str,
    count: int,
    deviation: float,
    noise: Noise,
    session: bytes | None = None,
    masks: bool = True,
) -> list[Server]:
    """Return P = ``count`` servers of one method; ``session`` names the run, or is drawn.

    Without ``masks`` servers of ``masked`` send what masks would hide, for who wants the numbers
    and not the protection.
    """
    if method == "none":
        return [Server(m) for m in range(count)]
    if method == "iid":
        return [IidServer(m, deviation, noise) for m in range(count)]
    if method == "hybrid":
        return [HybridServer(m, deviation, noise) for m in range(count)]
    if method == "masked":
        run = secrets.token_bytes(16) if session is None else session
        return [
            MaskedServer(m, deviation, noise, ServerMasks(m, run) if masks else NoMasks())
            for m in range(count)
        ]
    raise ValueError(f"method {method!r}: use none, iid, hybrid or masked")


def neighbours(weights: Matrix, server: int) -> list[int]:
    """Return N_p: whom p hears from and sends to, as A is symmetric; without p."""
    return list(_others_in(weights[server].tobytes(), server))


@lru_cache(maxsize=4096)
def _others_in(row: bytes, server: int) -> tuple[int, ...]:
    # Asked for many times a round, and the same for all rounds until a server fails.
    return tuple(m for m in np.flatnonzero(np.frombuffer(row)).tolist() if m != server)


def whole_matrix(weights: Matrix, alive: Sequence[int], count: int) -> Matrix:
    """Return the survivors' matrix (S, S) as one of all P servers, the others by themselves."""
    whole = np.eye(count)
    whole[np.ix_(alive, alive)] = weights
    return whole
