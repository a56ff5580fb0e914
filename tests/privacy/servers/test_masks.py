"""Zero-sum masks between the senders to one server."""

from __future__ import annotations

import hashlib
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trellis.privacy.secagg.errors import BadMessage, Refused
from trellis.privacy.secagg.ring import Ring
from trellis.privacy.servers.masks import FRACTION_BITS, ServerMasks, open_sum

SESSION = b"a run of a study"


def keys_from(seed):
    """Return a deterministic source of keys."""
    return lambda size: hashlib.shake_256(repr(seed).encode()).digest(size)


def group(members, seed=None, session=SESSION):
    made = {
        m: ServerMasks(m, session)
        if seed is None
        else ServerMasks(m, session, keys_from((seed, m)))
        for m in members
    }
    for masks in made.values():
        masks.meet({m: other.public for m, other in made.items()})
    return made


def looks_uniform(words):
    """Chi-square over byte values, for each of the eight byte places by itself."""
    table = np.frombuffer(words.tobytes(), np.uint8).reshape(-1, 8)
    return min(stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in table.T)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 99), min_size=2, max_size=9, unique=True),
    st.integers(1, 10**6), st.integers(1, 40), st.integers(0, 10**6),
)  # fmt: skip
def test_masks_cancel_in_every_word(senders, server_round, size, seed):
    terms = np.random.default_rng(seed).normal(0, 100, (len(senders), size))
    masks = group(senders, seed)
    messages = {
        m: masks[m].message(server_round, 200, senders, x)
        for m, x in zip(senders, terms, strict=True)
    }
    ring = Ring(FRACTION_BITS, len(senders))
    bare = sum((ring.encode(x) for x in terms), np.zeros(size, np.uint64))
    np.testing.assert_array_equal(sum(messages.values(), np.zeros(size, np.uint64)), bare)
    np.testing.assert_array_equal(open_sum(messages, 200, size), ring.decode(bare))


def test_a_message_is_uniform_whatever_is_sent():
    for value in (0.0, 1.0, -999.0):
        masks = group(range(3), seed=value)
        message = masks[1].message(1, 9, range(3), np.full(40_000, value))
        assert looks_uniform(message) > 1e-5
    assert looks_uniform(Ring(FRACTION_BITS, 3).encode(np.full(40_000, 1.0))) < 1e-100


def test_all_messages_but_one_are_uniform_together():
    """Without the last sender the others' sum still has the masks shared with it."""
    masks = group(range(4), seed=3)
    partial = sum(masks[m].message(1, 9, range(4), np.ones(40_000)) for m in range(3))
    assert looks_uniform(partial) > 1e-5


def test_two_values_give_the_same_law_under_fresh_keys():
    """One word of 3,000 runs with new keys each: no test tells psi = 0 from psi = 900."""
    samples = []
    for value in (0.0, 900.0):
        words = [
            int(group((0, 1), seed=(value, i))[0].message(1, 2, (0, 1), np.array([value]))[0])
            for i in range(1500)
        ]
        samples.append(np.array(words, dtype=np.float64) / 2.0**64)
        assert stats.kstest(samples[-1], "uniform").pvalue > 1e-4
    assert stats.ks_2samp(*samples).pvalue > 1e-4


def test_masks_differ_between_rounds_receivers_pairs_and_sessions():
    term = np.zeros(100)
    seen = []
    for session in (SESSION, b"another"):
        masks = group(range(4), seed=1, session=session)
        for server_round, receiver in itertools.product((1, 2, 11), (7, 8, 17)):
            for senders in ((0, 1), (0, 2), (0, 1, 2)):
                fresh = ServerMasks(0, session, keys_from((1, 0)))
                fresh.meet({m: other.public for m, other in masks.items()})
                seen.append(fresh.message(server_round, receiver, senders, term))
    for one, other in itertools.combinations(seen, 2):
        assert np.count_nonzero(one == other) == 0


def test_the_sum_does_not_depend_on_the_keys():
    terms = np.random.default_rng(0).normal(size=(5, 30))
    sums = []
    for _ in range(3):  # keys of the operating system
        masks = group(range(5))
        messages = {m: masks[m].message(4, 9, range(5), terms[m]) for m in range(5)}
        sums.append(open_sum(messages, 9, 30))
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_array_equal(sums[0], sums[2])


def test_a_hundred_servers_of_a_thousand_are_off_by_less_than_1e_12():
    rng = np.random.default_rng(5)
    psi = rng.uniform(-1e3, 1e3, (99, 4))
    psi[:, 0] = 1e3  # the largest sum
    weights = rng.dirichlet(np.ones(99))
    masks = group(range(99), seed=0)
    messages = {m: masks[m].message(1, 99, range(99), weights[m] * psi[m]) for m in range(99)}
    got = open_sum(messages, 99, 4)
    for i in range(4):
        exact = sum(
            Fraction(float(a)) * Fraction(float(x)) for a, x in zip(weights, psi[:, i], strict=True)
        )
        assert abs(Fraction(float(got[i])) - exact) <= Fraction(1, 10**12)


def test_the_fraction_bits_are_the_only_ones_that_keep_both_bounds():
    assert 99 * 2.0 ** -(FRACTION_BITS + 1) <= 1e-12 < 99 * 2.0**-FRACTION_BITS
    assert Ring(FRACTION_BITS, 99).limit >= 1e3 > Ring(FRACTION_BITS + 1, 99).limit


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [(1e5, OverflowError, r"what server 1 sends to server 9\[2\] = 100000.0 is beyond"),
     (np.nan, ValueError, r"what server 1 sends to server 9\[2\] = nan: only finite"),
     (-np.inf, ValueError, "only finite")],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(value, error, match):
    masks = group(range(3), seed=0)
    with pytest.raises(error, match=match):
        masks[1].message(1, 9, range(3), np.array([0.0, 1.0, value]))


def test_a_single_sender_is_refused():
    with pytest.raises(Refused, match=r"server 3 to server 4: it is the only sender.*add noise"):
        ServerMasks(3, SESSION).message(1, 4, [3], np.ones(2))


def test_a_round_is_masked_once():
    masks = group(range(2), seed=0)[0]
    masks.message(2, 5, (0, 1), np.ones(2))
    masks.message(2, 6, (0, 1), np.ones(2))
    for server_round, receiver in ((2, 5), (2, 6), (1, 7)):
        with pytest.raises(Refused, match=r"already masked \(the last round was 2\)"):
            masks.message(server_round, receiver, (0, 1), np.zeros(2))
    masks.message(3, 5, (0, 1), np.ones(2))


def test_a_refused_vector_does_not_use_up_the_mask():
    masks = group(range(2), seed=0)[0]
    with pytest.raises(OverflowError):
        masks.message(1, 5, (0, 1), np.array([1e9]))
    masks.message(1, 5, (0, 1), np.array([1.0]))


def test_a_sender_without_a_key_is_named():
    masks = group(range(2), seed=0)[0]
    with pytest.raises(Refused, match="no key of server 7"):
        masks.message(1, 5, (0, 1, 7), np.ones(2))


def test_a_server_that_comes_back_with_a_new_key_is_met_anew():
    masks = group(range(3), seed=0)
    again = ServerMasks(1, SESSION, keys_from("again"))
    again.meet({m: masks[m].public for m in (0, 2)})
    for m in (0, 2):
        masks[m].meet({1: again.public})
    masks[1] = again
    messages = {m: masks[m].message(1, 9, range(3), np.full(3, 1.0 + m)) for m in range(3)}
    np.testing.assert_array_equal(open_sum(messages, 9, 3), np.full(3, 6.0))


@pytest.mark.parametrize("key", [b"short", bytes(32)], ids=["length", "small order"])
def test_a_bad_key_is_named(key):
    with pytest.raises(BadMessage, match="key of server 4"):
        ServerMasks(0, SESSION).meet({4: key})


@pytest.mark.parametrize(
    "bad", [np.zeros(3), np.zeros(2, np.uint64), np.zeros((3, 1), np.uint64)],
    ids=["floats", "short", "matrix"],
)  # fmt: skip
def test_a_message_of_another_kind_is_named(bad):
    with pytest.raises(BadMessage, match=r"server 1 sent server 9.*3 masked words"):
        open_sum({0: np.zeros(3, np.uint64), 1: bad}, 9, 3)


def test_a_receiver_with_all_but_one_of_its_neighbours_learns_the_last():
    """What the module says is not covered, done."""
    masks = group(range(3), seed=0)
    terms = np.random.default_rng(0).normal(size=(3, 5))
    messages = {m: masks[m].message(1, 9, range(3), terms[m]) for m in range(3)}
    learnt = open_sum(messages, 9, 5) - terms[0] - terms[1]
    np.testing.assert_allclose(learnt, terms[2], atol=1e-12)


def test_two_receivers_that_compare_solve_for_the_two_neighbours_they_share():
    """The other thing that is not covered, done."""
    masks = group((0, 1), seed=0)
    psi, weights = np.random.default_rng(1).normal(size=(2, 5)), np.array([[0.2, 0.3], [0.4, 0.1]])
    sums = []
    for column, receiver in enumerate((8, 9)):
        messages = {
            m: masks[m].message(1, receiver, (0, 1), weights[m, column] * psi[m]) for m in (0, 1)
        }
        sums.append(open_sum(messages, receiver, 5))
    np.testing.assert_allclose(np.linalg.solve(weights.T, np.stack(sums)), psi, atol=1e-11)
