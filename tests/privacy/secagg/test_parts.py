from __future__ import annotations

import itertools
import secrets
from collections import Counter

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trellis.privacy.secagg import graph, keys, messages, pairs, shamir
from trellis.privacy.secagg.errors import BadMessage, Refused, TooFewClients
from trellis.privacy.secagg.masks import Masker
from trellis.privacy.secagg.ring import Ring, flatten, layout_of, unflatten
from trellis.privacy.secagg.state import ClientState, Stage

# --- the ring --------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=20),
    st.integers(0, 40),
    st.integers(1, 1000),
)
def test_encoding_is_off_by_at_most_half_a_unit(values, bits, clients):
    ring = Ring(bits, clients)
    back = ring.decode(ring.encode(np.array(values)))
    assert np.all(np.abs(back - values) <= 2.0 ** -(bits + 1))


def test_ties_go_to_even_and_so_twice_the_same():
    ring = Ring(0)
    ties = np.array([0.5, 1.5, 2.5, -0.5, -1.5])
    assert ring.decode(ring.encode(ties)).tolist() == [0.0, 2.0, 2.0, 0.0, -2.0]


@pytest.mark.parametrize("clients", [1, 2, 3, 1000])
def test_as_many_largest_values_as_there_are_clients_do_not_wrap(clients):
    ring = Ring(20, clients)
    for sign in (1.0, -1.0):
        words = ring.encode(np.array([sign * ring.limit]))
        total = np.sum([words] * clients, axis=0, dtype=np.uint64)
        assert ring.decode(total)[0] == pytest.approx(sign * ring.limit * clients)
    with pytest.raises(OverflowError, match=rf"w\[1, 0\] = .*limit for {clients} clients"):
        ring.encode(np.array([[0.0], [np.nextafter(ring.limit, np.inf) + 2.0**-20]]), "w")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match=r"w\[2\] = .*finite"):
        Ring().encode(np.array([1.0, 2.0, value]), "w")


def test_a_value_that_overflows_the_scaling_is_refused():
    with pytest.raises(OverflowError, match=r"1e\+308"):
        Ring(32).encode(np.array([1e308]))


@given(
    arrays(np.float64, st.integers(0, 40), elements=st.floats(width=64)),
    st.integers(0, 40),
    st.integers(1, 1000),
    st.sampled_from([0.0, 1.0, 3.7]),
)
def test_a_device_clips_whatever_the_value_and_counts(values, bits, clients, largest):
    ring = Ring(bits, clients, largest)
    words, clips = ring.clipped(values)
    half = 2.0 ** -(bits + 1)
    back, good = ring.decode(words), np.abs(values) <= ring.limit - half
    assert np.all(np.abs(back) <= ring.limit * (1 + 1e-15))
    assert np.all(np.abs(back - values)[good] <= half)
    assert np.all(back[~np.isfinite(values)] == 0.0)
    beyond = np.isfinite(values) & (np.abs(values) > ring.limit + 2 * half)
    assert np.all(np.sign(back[beyond]) == np.sign(values[beyond]))
    assert np.sum(~np.isfinite(values) | beyond) <= clips <= np.sum(~good)
    # As many as there are clients, all at the end of the range, do not wrap.
    total = ring.decode(np.sum([words] * clients, axis=0, dtype=np.uint64))
    np.testing.assert_allclose(total, clients * back, rtol=1e-12, atol=1e-9)


def test_a_range_that_cannot_hold_the_sum_is_refused_before_any_value():
    with pytest.raises(ValueError, match=r"largest=1e\+06: sums of 1000 clients with 40"):
        Ring(40, 1000, 1e6)
    assert Ring(32, 1000, 1e6).limit == 1e6


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match="float32"):
        Ring().encode(np.ones(2, np.float32))


@pytest.mark.parametrize("setting", [{"fraction_bits": 53}, {"fraction_bits": -1}, {"clients": 0}])
def test_a_ring_that_makes_no_sense_is_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Ring(**setting)


def test_named_arrays_come_back():
    named = {"w": np.arange(6.0).reshape(2, 3), "a": np.array(2.5), "none": np.empty((0, 4))}
    ring = Ring()
    words, clips = flatten(named, ring)
    assert clips == 0
    back = unflatten(words, layout_of(named), ring)
    for name, array in named.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].shape == array.shape


# --- masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 2**15, 2**15 + 1, 100_000])
def test_a_mask_added_and_subtracted_leaves_nothing(size):
    vector = np.arange(size, dtype=np.uint64)
    masker, seed = Masker(size), secrets.token_bytes(32)
    masker.add(vector, seed)
    assert size == 0 or not np.array_equal(vector, np.arange(size, dtype=np.uint64))
    Masker(size).subtract(vector, seed)
    np.testing.assert_array_equal(vector, np.arange(size, dtype=np.uint64))


def test_the_mask_is_aes_256_in_counter_mode():
    # printf '\\0%.0s' {1..16} | openssl enc -aes-256-ctr -K 00..00 -iv 00..00 | xxd -p
    vector = np.zeros(2, np.uint64)
    Masker(2).add(vector, bytes(32))
    assert vector.astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_a_wrong_seed_or_vector_is_refused():
    with pytest.raises(ValueError, match="31 bytes"):
        Masker(2).add(np.zeros(2, np.uint64), bytes(31))
    with pytest.raises(ValueError, match="2 words"):
        Masker(2).add(np.zeros(3, np.uint64), bytes(32))


# --- shares ----------------------------------------------------------------------------------


def test_the_modulus_is_prime():
    assert shamir.PRIME == 2**31 - 1
    assert all(shamir.PRIME % d for d in (2, *range(3, 46341, 2)))


@given(st.integers(1, 40), st.data())
def test_any_t_shares_give_the_secret(threshold, data):
    holders = threshold + data.draw(st.integers(0, 6))
    secret, shares = shamir.draw(holders, threshold)
    chosen = data.draw(st.permutations(range(holders)))[:threshold]
    found = shamir.combine({x + 1: shares[x].tobytes() for x in chosen}, threshold)
    assert found == secret


@pytest.mark.parametrize(("holders", "threshold"), [(3, 2), (61, 41), (195, 130), (1500, 1000)])
def test_shares_are_the_polynomials_values(holders, threshold):
    coefficients = shamir._uniform(threshold, secrets.token_bytes)
    shares = shamir.evaluate(coefficients, holders)
    for x in (1, 2, holders):
        for limb in range(shamir.LIMBS):
            terms = (int(c) * pow(x, i, shamir.PRIME) for i, c in enumerate(coefficients[:, limb]))
            assert shares[x - 1, limb] == sum(terms) % shamir.PRIME


def test_the_largest_numbers_are_exact():
    coefficients = np.full((1000, 4), shamir.PRIME - 1, np.uint64)
    share = shamir.evaluate(coefficients, 1200)[1199, 0]
    terms = sum((shamir.PRIME - 1) * pow(1200, i, shamir.PRIME) for i in range(1000))
    assert share == terms % shamir.PRIME


def test_too_few_shares():
    _, shares = shamir.draw(7, 4)
    with pytest.raises(TooFewClients, match="3 right shares, threshold 4"):
        shamir.combine({x + 1: shares[x].tobytes() for x in range(3)}, 4)


def test_t_minus_1_shares_say_nothing_by_enumeration_over_a_small_field(monkeypatch):
    # All polynomials of degree 2 over the field of 5: for every secret, any two shares take every
    # pair of values equally often, so two holders' view is the same whatever the secret.
    monkeypatch.setattr(shamir, "PRIME", 5)
    for places in itertools.combinations(range(4), 2):
        views = []
        for secret in range(5):
            seen = Counter()
            for c1, c2 in itertools.product(range(5), repeat=2):
                shares = shamir.evaluate(np.array([[secret], [c1], [c2]], np.uint64), 4)
                seen[tuple(int(shares[x, 0]) for x in places)] += 1
            views.append(seen)
        assert all(view == views[0] for view in views)
        assert set(views[0].values()) == {1}


def test_numbers_are_drawn_again_where_they_are_the_modulus():
    drawn = [b"\xff" * 16, b"\x01" * 16]
    found = shamir._uniform(1, lambda size: drawn.pop(0)[:size])
    assert found.tolist() == [[0x01010101] * 4]
    assert drawn == []


@pytest.mark.parametrize(("holders", "threshold"), [(3, 4), (3, 0), (0, 0)])
def test_a_threshold_that_cannot_be_is_refused(holders, threshold):
    with pytest.raises(ValueError, match=f"threshold={threshold}"):
        shamir.draw(holders, threshold)


# --- keys ------------------------------------------------------------------------------------


def pair(scope_a: keys.Scope, scope_b: keys.Scope | None = None):
    one, two = secrets.token_bytes(32), secrets.token_bytes(32)
    a = keys.Agreement(one, (1, "a"), scope_a)
    b = keys.Agreement(two, (2, "b"), scope_b or scope_a)
    return a, b, keys.public_key(one), keys.public_key(two)


def test_two_agree():
    a, b, public_a, public_b = pair(keys.Scope(bytes(16), 1))
    assert a.seed((2, "b"), public_b) == b.seed((1, "a"), public_a)


@pytest.mark.parametrize("other", [keys.Scope(bytes(16), 2), keys.Scope(bytes(15) + b"x", 1)])
def test_another_round_or_session_gives_another_key(other):
    a, b, public_a, public_b = pair(keys.Scope(bytes(16), 1), other)
    assert a.seed((2, "b"), public_b) != b.seed((1, "a"), public_a)


def test_a_pair_s_roots_agree_and_depend_on_everything():
    one, two = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    publics = [key.public_key().public_bytes_raw() for key in (one, two)]
    root = pairs.first_root(one, publics[1], bytes(32), (3, 8))
    assert root == pairs.first_root(two, publics[0], bytes(32), (8, 3))
    others = {
        pairs.first_root(one, publics[1], b"x" * 32, (3, 8)),
        pairs.first_root(one, publics[1], bytes(32), (3, 9)),
        pairs.first_root(one, publics[0], bytes(32), (3, 8)),
        pairs.advance(root, 1),
        pairs.advance(root, 2),
        pairs.pair_secrets(root, b"c")[:32],
        pairs.pair_secrets(root, b"d")[:32],
    }
    assert len(others | {root}) == 8
    assert pairs.advance(pairs.advance(root, 2), 3) == pairs.advance(root, 5)
    # The seed that the server may learn is none of the pads, and no word is another's.
    secret = pairs.pair_secrets(root, b"c")
    assert len({secret[:16], secret[16:32], secret[32:48], secret[48:]}) == 4
    assert pairs.mac(root, 3, b"c") != pairs.mac(root, 8, b"c")
    for bad in (b"short", bytes(32)):
        with pytest.raises(BadMessage, match="no valid key"):
            pairs.first_root(one, bad, bytes(32), (3, 8))


@pytest.mark.parametrize("public", [b"short", bytes(32)])
def test_an_invalid_public_key_is_refused(public):
    a, *_ = pair(keys.Scope(bytes(16), 1))
    with pytest.raises(BadMessage, match="client b is no valid key"):
        a.seed((2, "b"), public)


def test_no_two_contexts_read_alike():
    assert keys.joined("ab", "c") != keys.joined("a", "bc")
    assert keys.joined(1, "1") == keys.joined("1", 1)  # numbers are their decimal digits


# --- the graph -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clients", "k", "t", "fails", "half", "active"),
    [
        (100, 60, 41, 0.0, 9.8e-4, 9.8e-4),
        (200, 110, 74, 5.2e-7, 1.5e-5, 4.2e-5),
        (500, 194, 130, 7.7e-7, 5.7e-7, 5.7e-6),
        (1000, 260, 174, 7.9e-7, 1.5e-7, 3.1e-6),
        (5000, 368, 246, 9.9e-7, 4.7e-8, 2.3e-6),
    ],
)
def test_the_table_in_the_docstring(clients, k, t, fails, half, active):
    plan = graph.plan(clients)
    assert (plan.neighbours, plan.threshold) == (k, t)
    assert graph.failure(plan, 0.2) == pytest.approx(fails, rel=0.02)
    assert graph.exposure(plan, 0.5) == pytest.approx(half, rel=0.05)
    assert graph.exposure(plan, 1 / 3) < 1e-34
    needed = 2 * t - k - 2  # 2 t - h - 1
    assert graph.exposure(plan, 0.2, needed) == pytest.approx(active, rel=0.02)
    assert graph.exposure(plan, 0.1, needed) < 1e-30


def test_the_threshold_is_two_thirds_and_more_than_half():
    assert [graph.least_threshold(h) for h in range(3, 10)] == [2, 3, 4, 4, 5, 6, 6]
    assert graph.least_threshold(9, 0.5) == 5
    assert graph.least_threshold(9, 1.0) == 9


def test_failure_bounds_what_is_drawn():
    plan = graph.Plan(60, 20, 11)
    rng, failed = np.random.default_rng(0), 0
    for trial in range(400):
        gone = set(rng.choice(60, 18, replace=False).tolist())
        ring = graph.neighbours(range(60), 20, trial.to_bytes(4, "big"))
        failed += any(sum(v not in gone for v in (*ring[u], u)) < plan.threshold for u in range(60))
    assert failed / 400 <= graph.failure(plan, 0.3)
    assert failed > 0


@given(st.integers(3, 80), st.integers(1, 20), st.binary(max_size=8))
def test_the_graph_is_symmetric_and_regular(clients, half, nonce):
    members = [7 * i for i in range(clients)]
    found = graph.neighbours(members, 2 * half, nonce)
    assert found == graph.neighbours(members, 2 * half, nonce)
    for member, peers in found.items():
        assert len(peers) == len(set(peers)) == min(2 * half, clients - 1)
        assert all(member in found[peer] and peer != member for peer in peers)
        assert peers == graph.neighbours_of(member, members, 2 * half, nonce)


def test_the_graph_is_complete_for_few_and_changes_with_the_nonce():
    assert graph.plan(64) == graph.Plan(64, 63, 43)
    assert graph.plan(65).neighbours < 64
    assert graph.neighbours(range(90), 4, b"a") != graph.neighbours(range(90), 4, b"b")


@pytest.mark.parametrize(("k", "t"), [(10, 5), (10, 12), (9, 6), (0, 1), (20, 11)])
def test_a_plan_that_protects_nobody_is_refused(k, t):
    with pytest.raises(ValueError, match=f"neighbours={k}"):
        graph.Plan(20, k, t)


# --- messages and state ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        {"key": 1},
        {"key": "b", "signature": b""},
        {"key": True, "signature": b""},
        {"key": [b"b"], "signature": b""},
        {"key": bytes(1 << 22), "signature": b""},
        {"key": b"b", "signature": b"", "more": 1},
    ],
)
def test_a_record_that_is_no_message_is_refused(record):
    with pytest.raises(BadMessage, match="Advert: "):
        messages.parse(messages.Advert, record)


def test_a_message_survives_the_record():
    order = messages.Order(b"s", 3, "g", messages.pack([2, 1]), 2, 2, 32, 0.5)
    assert messages.to_fields(messages.Agreed(b"")) == {}  # what is empty is left out
    assert messages.parse(messages.Order, messages.to_fields(order)) == order


@pytest.mark.parametrize("data", [b"123", b"\1\0\0\0" * 2, b"\2\0\0\0\1\0\0\0", b"\0\0\1\0"])
def test_a_set_that_is_none_is_refused(data):
    with pytest.raises(BadMessage, match="survivors"):
        messages.unpack(data, "survivors")
    assert messages.unpack(messages.pack([5, 2, 9]), "x") == [2, 5, 9]


@pytest.mark.parametrize(
    "lists",
    [
        (["a"], [1, 1], [2, 2]),
        (["a"], [2], [2]),
        (["a"], [1], [-2]),
        (["b", "a"], [0, 0], []),
        (["a", "a"], [0, 0], []),
        ([], [], []),
        (["a", "b"], [-1, 2], [3]),
    ],
)
def test_a_layout_that_lies_is_refused(lists):
    with pytest.raises(BadMessage, match="layout"):
        messages.layout_from(messages.Masked(*lists, b"", b"", b""))


def test_a_state_survives_its_bytes():
    state = ClientState(bytes(16), 4, "n", b"p", b"d" * 32, messages.pack([4, 9]), b"k" * 64)
    state.roots, state.epochs, state.stage = bytearray(64), [-1, 7], Stage.QUESTION
    again = ClientState.from_bytes(state.to_bytes())
    assert again == state
    assert again.stage is Stage.QUESTION
    for cut in (1, 30, len(state.to_bytes()) - 1):
        with pytest.raises(Refused, match="damaged"):
            ClientState.from_bytes(state.to_bytes()[:cut])


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"session": 1}'])
def test_a_damaged_state_is_refused(data):
    with pytest.raises(Refused, match="damaged"):
        ClientState.from_bytes(data)
