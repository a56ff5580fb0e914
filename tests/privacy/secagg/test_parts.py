from __future__ import annotations

import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.secagg import graph, keys, messages, shamir
from privacy.secagg.errors import BadMessage, Refused, TooFewClients
from privacy.secagg.masks import Masker
from privacy.secagg.ring import Ring, flatten, layout_of, unflatten
from privacy.secagg.state import ClientState

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


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match="float32"):
        Ring().encode(np.ones(2, np.float32))


@pytest.mark.parametrize("setting", [{"fraction_bits": 53}, {"fraction_bits": -1}, {"clients": 0}])
def test_a_ring_that_makes_no_sense_is_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Ring(**setting)


def test_named_arrays_come_back():
    arrays = {"w": np.arange(6.0).reshape(2, 3), "a": np.array(2.5), "none": np.empty((0, 4))}
    ring = Ring()
    back = unflatten(flatten(arrays, ring), layout_of(arrays), ring)
    for name, array in arrays.items():
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
    # Miller-Rabin with 40 bases.
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        x = pow(base, odd, shamir.PRIME)
        chain = [pow(x, 2**i, shamir.PRIME) for i in range(twos)]
        assert x == 1 or shamir.PRIME - 1 in chain
    assert shamir.PRIME > 2**256


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_t_shares_give_the_secret(secret, threshold, data):
    holders = range(1, threshold + data.draw(st.integers(0, 6)) + 1)
    shares = shamir.split(secret, holders, threshold)
    chosen = data.draw(st.permutations(list(holders)))[:threshold]
    expected = shamir.commitment(secret)
    found = shamir.combine(
        {x: shares[x] for x in chosen}, threshold, lambda s: shamir.commitment(s) == expected
    )
    assert found == secret


def test_too_few_shares_and_wrong_shares():
    secret = secrets.token_bytes(32)
    shares = shamir.split(secret, range(1, 8), 4)
    with pytest.raises(TooFewClients, match="3 shares, threshold 4"):
        shamir.combine({x: shares[x] for x in (1, 2, 3)}, 4, lambda s: True)
    wrong = {**shares, 3: bytes(33)}
    with pytest.raises(BadMessage, match="some are wrong"):
        shamir.combine({x: wrong[x] for x in (1, 2, 3, 4)}, 4, lambda s: s == secret)
    # With more than t shares one liar is passed over.
    assert shamir.combine(wrong, 4, lambda s: s == secret) == secret


def test_t_minus_1_shares_fit_every_secret():
    shares = shamir.split(secrets.token_bytes(32), (1, 2, 3), 3)
    one, two = (int.from_bytes(shares[x], "big") for x in (1, 2))
    for other in (0, 1, 2**256 - 1):
        # The third difference of a quadratic is 0: with this third share ``other`` is the secret.
        third = (3 * two - 3 * one + other) % shamir.PRIME
        guess = {1: shares[1], 2: shares[2], 3: third.to_bytes(33, "big")}
        assert shamir.combine(guess, 3, lambda s: True) == other.to_bytes(32, "big")


@pytest.mark.parametrize("holders", [[0, 1], [1, 1], [-1, 2]])
def test_holders_that_would_hold_the_secret_are_refused(holders):
    with pytest.raises(ValueError, match="distinct positive"):
        shamir.split(bytes(32), holders, 2)


# --- keys ------------------------------------------------------------------------------------


def pair(scope_a: keys.Scope, scope_b: keys.Scope | None = None):
    one, two = secrets.token_bytes(32), secrets.token_bytes(32)
    a = keys.Agreement(one, (1, "a"), scope_a)
    b = keys.Agreement(two, (2, "b"), scope_b or scope_a)
    return a, b, keys.public_key(one), keys.public_key(two)


def test_two_clients_agree_and_what_is_sealed_opens():
    a, b, public_a, public_b = pair(keys.Scope(bytes(16), 1))
    assert a.seed((2, "b"), public_b) == b.seed((1, "a"), public_a)
    to_b, from_b = a.seals((2, "b"), public_b)
    to_a, from_a = b.seals((1, "a"), public_a)
    assert (to_b, from_b) == (from_a, to_a)
    assert len({to_b, from_b, a.seed((2, "b"), public_b)}) == 3
    assert keys.unseal(from_a, keys.seal(to_b, b"share"), "a") == b"share"


@pytest.mark.parametrize("other", [keys.Scope(bytes(16), 2), keys.Scope(bytes(15) + b"x", 1)])
def test_another_round_or_session_gives_another_key(other):
    a, b, public_a, public_b = pair(keys.Scope(bytes(16), 1), other)
    assert a.seed((2, "b"), public_b) != b.seed((1, "a"), public_a)
    assert a.seals((2, "b"), public_b)[0] != b.seals((1, "a"), public_a)[1]


def test_a_single_changed_bit_is_noticed():
    sealed = keys.seal(bytes(32), b"share")
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(BadMessage, match="client x were changed"):
            keys.unseal(bytes(32), changed, "x")


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
    ("clients", "k", "t", "fails", "exposed"),
    [
        (100, 58, 30, 3.4e-7, 1.4e-7),
        (200, 92, 47, 8.1e-7, 3.4e-7),
        (500, 140, 71, 9.2e-7, 3.8e-7),
        (1000, 172, 87, 8.4e-7, 3.5e-7),
        (5000, 218, 110, 9.7e-7, 4.1e-7),
    ],
)
def test_the_table_in_the_docstring(clients, k, t, fails, exposed):
    plan = graph.plan(clients)
    assert (plan.neighbours, plan.threshold) == (k, t)
    assert graph.failure(plan, 0.3) == pytest.approx(fails, rel=0.02)
    assert graph.exposure(plan, 0.3) == pytest.approx(exposed, rel=0.02)
    assert graph.exposure(plan, 0.2) < 1e-20


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


def test_the_graph_is_complete_for_few_and_changes_with_the_nonce():
    assert graph.plan(64) == graph.Plan(64, 63, 33)
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
        {"cipher-key": b"a", "mask-key": 1},
        {"cipher-key": b"a", "mask-key": "b", "signature": b""},
        {"cipher-key": b"a", "mask-key": True, "signature": b""},
        {"cipher-key": b"a", "mask-key": [b"b"], "signature": b""},
        {"cipher-key": b"a", "mask-key": bytes(5000), "signature": b""},
        {"cipher-key": b"a", "mask-key": b"b", "signature": b"", "more": 1},
    ],
)
def test_a_record_that_is_no_message_is_refused(record):
    with pytest.raises(BadMessage, match="Advert: "):
        messages.parse(messages.Advert, record)


def test_a_message_survives_the_record():
    question = messages.Question(b"s", 3, [1, 2], [])
    assert "dropped" not in messages.to_fields(question)
    assert messages.parse(messages.Question, messages.to_fields(question)) == question


@pytest.mark.parametrize(
    "masked",
    [
        messages.Masked(["a"], [1, 1], [2, 2]),
        messages.Masked(["a"], [2], [2]),
        messages.Masked(["a"], [1], [-2]),
        messages.Masked(["b", "a"], [0, 0], []),
        messages.Masked(["a", "a"], [0, 0], []),
        messages.Masked([], [], []),
        messages.Masked(["a", "b"], [-1, 2], [3]),
    ],
)
def test_a_layout_that_lies_is_refused(masked):
    with pytest.raises(BadMessage, match="layout"):
        messages.layout_from(masked)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"session": 1}'])
def test_a_damaged_state_is_refused(data):
    with pytest.raises(Refused, match="damaged"):
        ClientState.from_bytes(data)
