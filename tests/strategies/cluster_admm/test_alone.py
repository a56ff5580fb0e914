"""A strategy for each server of cluster-admm, and one for all of them: the same numbers."""

from __future__ import annotations

from threading import Barrier, Thread

import numpy as np
import pytest

from trellis.strategies.cluster_admm.strategy import ClusterAdmm, ExactMixing, PaperMixing
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.network.mailbox import Mailbox
from trellis.strategies.topology.graph import topology

SERVERS, CLUSTERS, SIZE, ROUNDS = 4, 2, 3, 12
HOMES = [0, 0, 0, 1, 1, 2, 2, 3, 3]
GROUPS = [0, 1, 1, 0, 1, 0, 1, 0, 0]
MIXINGS = pytest.mark.parametrize("exact", [True, False])


class Shelf:
    """Where the letters of a round lie until everyone has put theirs there."""

    def __init__(self, count):
        self.letters, self.barrier = {}, Barrier(count, timeout=30)


class LoneMailbox(Mailbox):
    """The mailbox of one server, on a thread of its own."""

    def __init__(self, server, shelf):
        super().__init__(SERVERS)
        self.own, self.shelf = (server,), shelf

    def carry(self, server_round, letters, edges):
        (server,) = self.own
        assert set(letters) == {server}
        self.shelf.letters |= {
            (server_round, server, p): told for p, told in letters[server].items()
        }
        self.shelf.barrier.wait()
        near = np.flatnonzero(edges[server]).tolist()
        return {server: {p: self.shelf.letters[server_round, p, server] for p in near}}


def strategy(exact, mailbox=None):
    mixing, adjacency = ExactMixing() if exact else PaperMixing(), topology("ring", SERVERS)
    return ClusterAdmm(adjacency.adjacency, CLUSTERS, 2.0, 0.1, mixing=mixing, mailbox=mailbox)


def places(server=None):
    return {
        k: {"server": home, "cluster": GROUPS[k]}
        for k, home in enumerate(HOMES)
        if server in (None, home)
    }


def begun(exact, server=None, shelf=None):
    """Return a strategy at its start: of one server, or of all."""
    found = strategy(exact, None if server is None else LoneMailbox(server, shelf))
    if server is not None:
        elsewhere = [q for q, home in zip(GROUPS, HOMES, strict=True) if home != server]
        found.elsewhere = np.bincount(elsewhere, minlength=CLUSTERS).astype(float)
    found.begin(SIZE)
    found.assign(places(server))
    return found


def play(found, rounds):
    """Let clients answer, f_k = |w - k|^2 / 2 + share |w|^2 / 2."""
    for server_round in rounds:
        answers = {
            k: (float(k) + found.target(k)) / (1.0 + found.share(k) + found.rho)
            for k in found.places
        }
        row = found.update(server_round, answers)
        assert np.isfinite(row["change"])


def each(lone, rounds):
    """Let the servers, each on its own thread, run rounds."""
    failures = []

    def one(found):
        try:
            play(found, rounds)
        except Exception as error:
            failures.append(error)
            found.mailbox.shelf.barrier.abort()

    threads = [Thread(target=one, args=(found,)) for found in lone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@MIXINGS
def test_servers_that_live_alone_have_the_models_of_servers_that_live_together(exact):
    whole, shelf = begun(exact), Shelf(SERVERS)
    lone = [begun(exact, s, shelf) for s in range(SERVERS)]
    play(whole, range(1, ROUNDS + 1))
    each(lone, range(1, ROUNDS + 1))
    assert np.max(np.abs(whole.models)) > 0.5
    for s, found in enumerate(lone):
        np.testing.assert_array_equal(found.models[s], whole.models[s])
        np.testing.assert_array_equal(found.server_duals[s], whole.server_duals[s])
        assert np.isnan(np.delete(found.models, s, axis=0)).all()
        first = HOMES.index(s)
        assert found.share(first) == whole.share(first)


@MIXINGS
def test_a_server_that_lives_alone_goes_on_from_its_checkpoint(exact):
    shelf, again = Shelf(SERVERS), Shelf(SERVERS)
    lone = [begun(exact, s, shelf) for s in range(SERVERS)]
    each(lone, range(1, 6))
    kept = [{name: a.copy() for name, a in found.state_dict().items()} for found in lone]
    each(lone, range(6, 11))
    restored = [begun(exact, s, again) for s in range(SERVERS)]
    for found, state in zip(restored, kept, strict=True):
        found.load_state_dict(state)
    each(restored, range(6, 11))
    for one, other in zip(lone, restored, strict=True):
        for name, array in one.state_dict().items():
            np.testing.assert_array_equal(other.state_dict()[name], array)
    assert any(name.startswith("memory_2_") for name in lone[2].state_dict())
    assert not any(name.startswith("memory_") for name in begun(exact).state_dict())


def test_the_regulariser_is_shared_with_clients_elsewhere():
    found = begun(True)
    assert found.share(0) == 1.0 / GROUPS.count(0)
    found.elsewhere = np.array([5.0, 0.0])
    found.assign({})
    assert found.share(0) == 1.0 / (GROUPS.count(0) + 5)
    assert found.share(1) == 1.0 / GROUPS.count(1)


def test_a_client_of_another_server_is_named():
    found = strategy(True, LoneMailbox(2, Shelf(1)))
    with pytest.raises(StudyError, match="node 3 belongs to server 1 and has come to server 2"):
        found.assign(places(1))
