"""What the server has been given to open one sum, each piece checked against its commitment.

Adversary: clients that give wrong shares or seeds, to spoil the sum. See `server`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from . import shamir
from .errors import Again, BadMessage
from .messages import Masked
from .pairs import COMMITMENT_BYTES, commitment
from .protocol import self_seed


class Opening:
    """The shares and seeds of one round.

    Parameters
    ----------
    graph : neighbours of all participants
    threshold : t
    masked : what came with the survivors' vectors

    Attributes
    ----------
    given : shares by holder, then by owner
    pair_seeds : by survivor, then by its dropped neighbour
    """

    def __init__(
        self, graph: Mapping[int, list[int]], threshold: int, masked: Mapping[int, Masked]
    ) -> None:
        self._graph, self._t, self._masked = graph, threshold, masked
        self.given: dict[int, dict[int, bytes]] = {}
        self.pair_seeds: dict[int, dict[int, bytes]] = {}

    def take(self, client: int, shares: Mapping[int, bytes], seeds: Mapping[int, bytes]) -> None:
        """Take what a client gives; without right seeds it is as if it had given nothing."""
        committed, peers = self._masked[client].seed_commitments, self._graph[client]
        for peer, seed in seeds.items():
            if commitment(seed) != _row(committed, bisect_left(peers, peer)):
                raise BadMessage("a pair seed is not the one it had committed to")
        self.given[client], self.pair_seeds[client] = dict(shares), dict(seeds)

    def self_seeds(self, names: Mapping[int, str]) -> list[bytes]:
        """Return the seed of every survivor's own mask.

        Raises
        ------
        Again
            Where some survivor has fewer than t right shares: without those who gave wrong ones to
            most, or, where nobody did, without the survivors in question.
        """
        seeds, lost = [], {}
        for owner in self._masked:
            shares = self._right_shares(owner)
            if len(shares) < self._t:
                lost[owner] = f"{len(shares)} right shares of its secret came; {self._t} are needed"
            else:
                seeds.append(self_seed(shamir.combine(shares, self._t)))
        if lost:
            first = min(lost)
            raise Again(
                f"client {names[first]} cannot be unmasked: {lost[first]}", self._liars() or lost
            )
        return seeds

    def _right_shares(self, owner: int) -> dict[int, bytes]:
        """Return t right shares of an owner's secret by place, or as many as there are."""
        committed, found = self._masked[owner].share_commitments, {}
        for place, holder in enumerate(sorted([owner, *self._graph[owner]])):
            share = self.given.get(holder, {}).get(owner)
            if share is not None and commitment(share) == _row(committed, place):
                found[place + 1] = share
                if len(found) == self._t:
                    break
        return found

    def _liars(self) -> dict[int, str]:
        liars = {}
        for holder, shares in self.given.items():
            wrong = sum(
                commitment(share)
                != _row(
                    self._masked[owner].share_commitments,
                    sorted([owner, *self._graph[owner]]).index(holder),
                )
                for owner, share in shares.items()
            )
            if 2 * wrong > len(shares):
                liars[holder] = f"{wrong} of the {len(shares)} shares it gave are wrong"
        return liars


def _row(data: bytes, place: int) -> bytes:
    return data[COMMITMENT_BYTES * place : COMMITMENT_BYTES * (place + 1)]
