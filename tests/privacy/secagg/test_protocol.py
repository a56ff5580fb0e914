from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from privacy.secagg.errors import BadMessage, Refused, TooFewClients
from privacy.secagg.graph import Plan
from privacy.secagg.keys import public_key
from privacy.secagg.masks import Masker
from privacy.secagg.protocol import ClientRound, Policy
from privacy.secagg.state import Stage

from .rounds import STAGES, plain, play, some_inputs

K_REGULAR = Plan(60, 40, 21)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 7), st.integers(1, 40), st.data())
def test_the_unmasked_sum_is_the_plain_sum_bit_for_bit(count, size, data):
    numbers = st.floats(-1e6, 1e6)
    inputs = {i: {"x": data.draw(arrays(np.float64, size, elements=numbers))} for i in range(count)}
    played = play(inputs, fraction_bits=30)
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, inputs, 30))


def test_the_total_is_decoded_by_name():
    inputs = some_inputs(4)
    total = play(inputs).server.total()
    for name in ("a", "b"):
        expected = np.sum([inputs[i][name] for i in inputs], axis=0)
        np.testing.assert_allclose(total[name], expected, atol=4 * 2.0**-33, rtol=0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("stage", [*STAGES, "any"])
@pytest.mark.parametrize(("count", "chosen"), [(5, None), (10, None), (33, None), (60, K_REGULAR)])
def test_with_30_percent_gone_the_sum_over_survivors_is_exact(count, chosen, stage, seed):
    rng = np.random.default_rng(seed)
    gone = rng.choice(count, int(0.3 * count), replace=False).tolist()
    drop = {name: set() for name in STAGES}
    for client in gone:
        drop[STAGES[rng.integers(4)] if stage == "any" else stage].add(client)
    inputs = some_inputs(count, seed=seed)
    played = play(inputs, drop=drop, chosen=chosen)
    # Who vanishes before the last stage has given its vector already.
    expected = sorted(set(inputs) - set(gone) | drop["unmask"])
    assert played.survivors == expected
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, expected))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("count", "chosen"), [(9, None), (60, K_REGULAR)])
def test_below_the_threshold_it_stops(count, chosen, stage):
    gone = set(range(count // 2 + 3))
    with pytest.raises(TooFewClients, match="threshold"):
        play(some_inputs(count), drop={stage: gone}, chosen=chosen).server.total_words()


def test_below_the_threshold_nobody_was_asked_for_a_share():
    asked = []

    def watch(stage, client, message):
        asked.append(stage)
        return message

    with pytest.raises(TooFewClients, match=r"4 of 9 clients sent a masked.*threshold is 5"):
        play(some_inputs(9), drop={"masked": {0, 1, 2, 3, 4}}, tamper=watch)
    assert "question" not in asked


def test_a_client_with_too_few_neighbours_is_left_out_before_it_can_spoil_the_sum():
    chosen, inputs = Plan(40, 8, 5), some_inputs(40)
    of_seven = play(inputs, chosen=chosen).server._graph[7]
    played = play(inputs, drop={"shares": set(of_seven[:5])}, chosen=chosen)
    assert 7 not in played.survivors
    assert 20 < len(played.survivors) < 35
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, played.survivors))


def test_a_neighbourhood_that_falls_apart_while_masking_stops_the_round():
    with pytest.raises(TooFewClients, match=r"holders of client client-\d+'s shares are left"):
        play(some_inputs(40), drop={"masked": set(range(12))}, chosen=Plan(40, 4, 4))


# --- what a client refuses -------------------------------------------------------------------


def test_both_secrets_of_one_client_are_refused_in_one_request():
    played = play(some_inputs(5), drop={"unmask": {0}})
    question = played.server.question(0)
    with pytest.raises(Refused, match="both secrets of client client-1 are asked for"):
        played.clients[0].unmask(replace(question, dropped=[1]))
    assert played.clients[0].state.revealed == {}


def test_both_secrets_of_one_client_are_refused_over_many_requests():
    played = play(some_inputs(5))
    client, question = played.clients[0], played.server.question(0)
    again = client.unmask(question)
    assert again.survivors == [0, *question.survivors]
    other = replace(question, survivors=[2, 3, 4], dropped=[1])
    with pytest.raises(Refused, match="both secrets of client client-1"):
        client.unmask(other)
    # In the other order too, and after the state went through bytes.
    played = play(some_inputs(5), drop={"unmask": {0}})
    client = played.clients[0]
    client.unmask(other)
    client = ClientRound(type(client.state).from_bytes(client.state.to_bytes()), Policy())
    with pytest.raises(Refused, match="both secrets of client client-1"):
        client.unmask(question)


def test_the_own_mask_key_is_never_given():
    played = play(some_inputs(5))
    question = played.server.question(0)
    with pytest.raises(BadMessage, match=r"clients \[0\]"):
        played.clients[0].unmask(replace(question, dropped=[0]))


def test_too_few_survivors_are_refused():
    played = play(some_inputs(7), drop={"unmask": {0}})
    question = replace(played.server.question(0), survivors=[1, 2], dropped=[3, 4, 5, 6])
    with pytest.raises(Refused, match=r"3 clients stayed.*threshold 4"):
        played.clients[0].unmask(question)


def test_a_neighbour_named_twice_counts_once():
    played = play(some_inputs(7), drop={"unmask": {0}})
    with pytest.raises(Refused, match="3 clients stayed"):
        played.clients[0].unmask(replace(played.server.question(0), survivors=[1, 2, 2, 1]))


def test_a_second_masked_vector_is_refused():
    played = play(some_inputs(5))
    with pytest.raises(Refused, match="already masked"):
        played.clients[0].mask(some_inputs(1, seed=9)[0])
    with pytest.raises(Refused, match="already masked"):
        played.clients[0].deliver(played.server.delivery(0))
    with pytest.raises(Refused, match="already masked"):
        played.clients[0].share(played.server.directory(0))


def test_stages_out_of_order_are_refused():
    played = play(some_inputs(5))
    client, _ = ClientRound.begin(replace(played.server.hello(0), number=2), Policy())
    later = {"number": 2}
    with pytest.raises(Refused, match="not yet masked"):
        client.unmask(replace(played.server.question(0), **later))
    with pytest.raises(Refused, match="not yet shared"):
        client.deliver(replace(played.server.delivery(0), **later))
    with pytest.raises(Refused, match="not yet delivered"):
        client.mask(some_inputs(1)[0])


@pytest.mark.parametrize("change", [{"session": bytes(16)}, {"number": 2}, {"number": 0}])
def test_messages_of_another_session_or_round_are_refused(change):
    played = play(some_inputs(5))
    with pytest.raises(Refused, match="another session or round"):
        played.clients[0].unmask(replace(played.server.question(0), **change))


def test_a_round_begins_once_and_a_session_lasts():
    played = play(some_inputs(5), number=3)
    hello, state = played.server.hello(0), played.clients[0].state
    for number in (3, 2):
        with pytest.raises(Refused, match="already begun"):
            ClientRound.begin(replace(hello, number=number), Policy(), state)
    with pytest.raises(Refused, match="another session"):
        ClientRound.begin(replace(hello, session=bytes(16), number=4), Policy(), state)
    ClientRound.begin(replace(hello, number=4), Policy(), state)


def test_keys_and_seeds_are_fresh_in_every_round():
    first, second = play(some_inputs(3)), play(some_inputs(3), number=2)
    one, two = first.server._adverts[0], second.server._adverts[0]
    assert len({one.cipher_key, one.mask_key, two.cipher_key, two.mask_key}) == 4
    assert not np.array_equal(first.vectors[0], second.vectors[0])


def test_secrets_are_forgotten_once_used():
    state = play(some_inputs(5)).clients[0].state
    assert state.stage == Stage.MASKED
    assert state.cipher_private == state.mask_private == state.self_seed == b""
    assert all(peer.open_key == b"" for peer in state.peers.values())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"threshold": 2}, "more than half"),
        ({"threshold": 9}, "threshold 9"),
        ({"peers": [1, 2, 3]}, "length"),
        ({"peers": [0, 2, 3, 4]}, "oneself"),
        ({"peers": [1, 1, 3, 4]}, "twice"),
    ],
)
def test_a_directory_that_would_weaken_the_round_is_refused(change, reason):
    def tamper(stage, client, message):
        return replace(message, **change) if (stage, client) == ("directory", 0) else message

    with pytest.raises((Refused, BadMessage), match=reason):
        play(some_inputs(5), tamper=tamper)


def test_a_server_that_stands_for_all_neighbours_with_one_key_is_refused():
    def tamper(stage, client, message):
        if (stage, client) == ("directory", 0):
            return replace(message, mask_keys=[message.mask_keys[0]] * 4)
        return message

    with pytest.raises(BadMessage, match="a key is listed twice"):
        play(some_inputs(5), tamper=tamper)


def test_two_clients_are_too_few():
    with pytest.raises(Refused, match="2 clients; this device wants at least 3"):
        play(some_inputs(2))


# --- tampering -------------------------------------------------------------------------------


def test_sealed_shares_that_were_changed_are_refused():
    def tamper(stage, client, message):
        if (stage, client) == ("delivery", 0):
            bad = bytes([message.sealed[2][0] ^ 1]) + message.sealed[2][1:]
            return replace(message, sealed=[*message.sealed[:2], bad, *message.sealed[3:]])
        return message

    with pytest.raises(BadMessage, match="client client-3 were changed"):
        play(some_inputs(5), tamper=tamper)


def test_sealed_shares_of_another_sender_are_refused():
    def tamper(stage, client, message):
        if (stage, client) == ("delivery", 0):
            return replace(message, sealed=message.sealed[::-1])
        return message

    with pytest.raises(BadMessage, match="changed on the way"):
        play(some_inputs(5), tamper=tamper)


def test_keys_in_the_middle_are_noticed_when_shares_do_not_open():
    other = play(some_inputs(5), number=2).server._adverts[1]

    def tamper(stage, client, message):
        if (stage, client) == ("directory", 0):
            return replace(message, cipher_keys=[other.cipher_key, *message.cipher_keys[1:]])
        return message

    with pytest.raises(BadMessage, match="changed on the way"):
        play(some_inputs(5), tamper=tamper)


@pytest.mark.parametrize("drop", [{}, {"masked": {4}}])
def test_one_liars_share_is_passed_over_and_many_are_detected(drop):
    inputs = some_inputs(7)

    def lie(liars):
        def tamper(stage, client, message):
            if stage == "shares" and client in liars:
                return replace(
                    message,
                    self_shares=[bytes(33)] * len(message.self_shares),
                    key_shares=[bytes(33)] * len(message.key_shares),
                )
            return message

        return play(inputs, drop=drop, tamper=tamper)

    played = lie({1})
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, played.survivors))
    with pytest.raises(BadMessage, match=r"client client-\d cannot be unmasked.*some are wrong"):
        lie({0, 1, 2, 3}).server.total_words()


def test_a_client_that_shared_another_mask_key_is_detected_when_it_drops():
    def tamper(stage, client, message):
        if (stage, client) == ("advert", 4):
            return replace(message, mask_key=bytes([1]) * 32)
        return message

    played = play(some_inputs(5), drop={"masked": {4}}, tamper=tamper)
    with pytest.raises(BadMessage, match="client client-4 cannot be unmasked"):
        played.server.total_words()


# --- what the server sees --------------------------------------------------------------------


def seen(value: float, runs: int, size: int = 2000) -> np.ndarray:
    """Return the bytes of client 1's masked vector over several runs, of a constant input."""
    vectors = []
    for _ in range(runs):
        inputs = {i: {"x": np.full(size, value)} for i in range(3)}
        vectors.append(play(inputs).vectors[1])
    return np.concatenate(vectors).view(np.uint8)


def test_a_masked_vector_is_indistinguishable_from_uniform():
    # Three tests at 1e-6: a false alarm in 300,000 runs.
    zeros, large = seen(0.0, 8), seen(1.2345e5, 8)
    for data in (zeros, large):
        counts = np.bincount(data, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6
        words = data.view(np.uint64) / 2.0**64
        assert stats.kstest(words, "uniform").pvalue > 1e-6
        # No word repeats between entries or runs, though the input is one constant.
        assert len(np.unique(data.view(np.uint64))) == data.size // 8
    table = [np.bincount(data, minlength=256) for data in (zeros, large)]
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_the_vector_of_a_dropped_client_stays_uniform_to_a_server_that_kept_it():
    # It came too late: the server learns the mask key, but never the self seed.
    inputs = {i: {"x": np.zeros(2000)} for i in range(4)}
    played = play(inputs, drop={"masked": {3}})
    late = played.clients[3]
    late.deliver(played.server.delivery(3))
    vector, _ = late.mask(inputs[3])
    server = played.server
    private = server._recover(3, server._key_shares, public_key, server._adverts[3].mask_key)
    left = vector.copy()
    server._remove_pair_masks(left, Masker(left.size), 3, private)
    assert stats.chisquare(np.bincount(left.view(np.uint8), minlength=256)).pvalue > 1e-6
