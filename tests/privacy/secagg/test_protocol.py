from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from trellis.privacy.secagg import graph
from trellis.privacy.secagg.errors import Again, BadMessage, NoSuchSession, Refused, TooFewClients
from trellis.privacy.secagg.masks import Masker
from trellis.privacy.secagg.messages import Question, pack
from trellis.privacy.secagg.pairs import MAC_BYTES
from trellis.privacy.secagg.protocol import Member, Policy, add_masks, self_seed
from trellis.privacy.secagg.server import ServerRound
from trellis.privacy.secagg.state import Stage

from .rounds import PAYLOAD, STAGES, enter, plain, play, some_inputs


@pytest.fixture
def sparse(monkeypatch):
    """Let forty clients be many: a graph with fewer neighbours than there are clients."""
    monkeypatch.setattr(graph, "COMPLETE", 8)
    graph.plan.cache_clear()
    yield
    graph.plan.cache_clear()


@settings(max_examples=15, deadline=None)
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


def opened(inputs, drop):
    """Return the survivors of the round that opens, and their sum: made again where it must be."""
    devices, members = enter(len(inputs)), sorted(inputs)
    for number in range(1, 6):
        those = {c: inputs[c] for c in members}
        try:
            played = play(those, devices=devices, drop=drop, number=number)
            return played.survivors, played.server.total_words()
        except Again as error:
            members = [c for c in members if c not in {*error.without, *drop.get("masked", ())}]
            drop = {}
    raise AssertionError("never opened")


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 12), st.data())
def test_any_dropouts_at_any_stage_with_enough_left_give_the_exact_sum(count, data):
    gone = data.draw(st.lists(st.integers(0, count - 1), unique=True, max_size=count // 3))
    drop = {stage: set() for stage in STAGES}
    for client in gone:
        drop[data.draw(st.sampled_from(STAGES))].add(client)
    inputs = some_inputs(count)
    survivors, total = opened(inputs, drop)
    np.testing.assert_array_equal(total, plain(inputs, survivors))
    # Who stays to the end is in the sum; who vanishes before it masks is not.
    assert set(inputs) - set(gone) <= set(survivors) <= set(inputs) - drop["masked"]


@pytest.mark.parametrize("stage", ["masked", "agree", "unmask"])
def test_on_a_sparse_graph_too(sparse, stage):
    inputs = some_inputs(40)
    assert graph.plan(40).neighbours < 39
    survivors, total = opened(inputs, {stage: {3, 17, 30}})
    assert len(survivors) == (37 if stage == "masked" else 40)
    np.testing.assert_array_equal(total, plain(inputs, survivors))


def test_one_set_up_serves_many_rounds_and_changing_participants():
    inputs, devices = some_inputs(9), enter(9)
    for number, members in enumerate([range(9), [0, 2, 4, 6], range(3, 9), range(9)], 1):
        those = {c: inputs[c] for c in members}
        played = play(those, devices=devices, number=3 * number)
        np.testing.assert_array_equal(played.server.total_words(), plain(those, members))


def test_below_the_threshold_it_stops_and_nobody_was_asked():
    with pytest.raises(Again, match=r"5 of client client-0's holders are left; the threshold is 6"):
        play(some_inputs(9), drop={"masked": {5, 6, 7, 8}})
    with pytest.raises(TooFewClients, match=r"2 of 9 clients sent a masked.*no sum was learnt"):
        play(some_inputs(9), drop={"masked": set(range(7))})


# --- what a client refuses -------------------------------------------------------------------


def test_every_stage_is_answered_once_and_in_order():
    inputs = some_inputs(5)
    played = play(inputs, until="masked")
    devices, server = played.devices, played.server
    server.close_masked()
    question = Question(server.session.session, 1, b"", b"", b"")
    with pytest.raises(Refused, match="waits for the roll, not the question"):
        devices.ask(0, "unmask", question)
    with pytest.raises(Refused, match="round 1 of this session is not new"):
        devices.masked(0, server.order, inputs[0])
    for c in range(5):
        server.take_agreed(c, devices.ask(c, "agree", server.roll()))
        with pytest.raises(Refused, match="waits for the question, not the roll"):
            devices.ask(c, "agree", server.roll())
    for c in range(5):
        devices.ask(c, "unmask", server.question(c))
        with pytest.raises(Refused, match="waits for the order, not the question"):
            devices.ask(c, "unmask", server.question(c))
    before = devices.states[0]
    devices.ask(0, "meet", server.session.close())  # the same again changes nothing
    assert devices.states[0] == before
    other = replace(server.session.close(), names=[f"other-{i}" for i in range(5)])
    with pytest.raises(Refused, match="has met others in this session already"):
        devices.ask(0, "meet", other)
    with pytest.raises(Refused, match="already entered"):
        Member.enter(server.session.hello(0), Policy(), devices.member(0).state)


def test_one_round_masks_one_vector():
    devices = enter(5)
    member = devices.member(0)
    server = ServerRound(devices.session, 1, list(range(5)), graph.plan(5))
    member.begin(server.order, PAYLOAD)
    member.mask(some_inputs(1)[0])
    with pytest.raises(Refused, match="already masked"):
        member.mask(some_inputs(1, seed=9)[0])


@pytest.mark.parametrize("stage", ["agree", "unmask"])
def test_messages_of_another_session_or_round_are_refused(stage):
    played = play(some_inputs(5), until="masked" if stage == "agree" else "agree")
    played.server.survivors = list(range(5))
    message = played.server.roll() if stage == "agree" else played.server.question(0)
    with pytest.raises(NoSuchSession, match="another session"):
        played.devices.ask(0, stage, replace(message, session=bytes(16)))
    for number in (0, 2):
        with pytest.raises(Refused, match=f"in round 1, not {number}"):
            played.devices.ask(0, stage, replace(message, number=number))


def test_old_rounds_and_rounds_far_ahead_are_refused():
    inputs, devices = some_inputs(5), enter(5)
    play(inputs, devices=devices, number=7)
    for number in (7, 6, 0, -1, 10_008):
        with pytest.raises(Refused, match="not new, or more than 10000 ahead"):
            play(inputs, devices=devices, number=number)
    play(inputs, devices=devices, number=8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"threshold": 3}, "this device wants at least 4"),
        ({"threshold": 6}, "threshold 6 of 5 holders"),
        ({"neighbours": 2}, "2 neighbours among 5 clients; at least 4"),
        ({"participants": pack([0, 1])}, "2 clients; this device wants at least 3"),
        ({"participants": pack([1, 2, 3, 4])}, "not among the participants"),
        ({"participants": pack([0, 1, 2, 77])}, "a stranger is"),
        ({"participants": b"123"}, "no list of clients"),
        ({"fraction_bits": 41}, "fraction_bits=41"),
        ({"fraction_bits": -1}, "fraction_bits=-1"),
        ({"largest": float("nan")}, "no number"),
        ({"largest": 1e12}, "largest=1e"),
        ({"largest": -1.0}, "largest=-1"),
    ],
)
def test_an_order_that_would_weaken_the_round_is_refused_before_all_else(change, reason):
    devices = enter(5)
    order = ServerRound(devices.session, 1, list(range(5)), graph.plan(5)).order
    with pytest.raises((Refused, BadMessage, ValueError), match=reason):
        devices.member(0).begin(replace(order, **change), PAYLOAD)


@pytest.mark.parametrize(
    ("survivors", "reason"),
    [
        ([1, 2, 3, 4, 5, 6], "perhaps without this one"),
        ([0, 1], "a sum of 2 clients"),
        ([0, 1, 2, 3], "4 of this client's holders are left; threshold 5"),
        ([0, 1, 2, 3, 4, 9], r"clients \[9\] are in the sum, who take no part"),
    ],
)
def test_a_roll_that_would_weaken_the_round_is_refused(survivors, reason):
    played = play(some_inputs(7), until="masked")
    played.server.survivors = survivors
    with pytest.raises((Refused, BadMessage), match=reason):
        played.devices.ask(0, "agree", played.server.roll())


def test_a_device_can_want_more_clients_than_the_neighbourhood():
    with pytest.raises(Refused, match="wants at least 6"):
        enter(5, policy=Policy(fewest=6))
    with pytest.raises(ValueError, match=r"fewest-share=0\.4"):
        Policy(share=0.4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: replace(d, names=d.names[:-1]), "differ in length"),
        (lambda d: replace(d, keys=d.keys[:-32]), "bytes of keys"),
        (lambda d: replace(d, keys=d.keys[32:] + d.keys[-32:]), "a key is listed twice"),
        (lambda d: replace(d, keys=d.keys[32:] + d.keys[:32]), "with another name or key"),
        (lambda d: replace(d, names=["x", *d.names[1:]]), "with another name or key"),
        (lambda d: replace(d, members=pack(range(1, 6))), "with another name or key"),
    ],
)
def test_a_directory_that_contradicts_itself_is_refused(change, reason):
    def tamper(stage, client, message):
        return change(message) if (stage, client) == ("meet", 0) else message

    with pytest.raises((Refused, BadMessage), match=reason):
        enter(5, tamper=tamper)


# --- secrets ---------------------------------------------------------------------------------


def test_keys_go_before_the_first_round_and_roots_only_go_forward():
    inputs, devices = some_inputs(5), enter(5)
    fresh = devices.member(0).state
    assert fresh.private == fresh.keys == b""
    play(inputs, devices=devices, number=1)
    first = devices.member(0).state
    assert first.epochs == [-1, 2, 2, 2, 2]  # past the round that has ended
    assert first.context == first.own_share == first.peers == b""
    assert first.roots != fresh.roots
    # A round that never ends is forgotten with the next.
    play(inputs, devices=devices, number=2, until="agree")
    assert devices.member(0).state.stage == Stage.QUESTION
    play({c: inputs[c] for c in (0, 1, 2)}, devices=devices, number=3, until="masked")
    assert devices.member(0).state.epochs == [-1, 3, 3, 3, 3]


def test_in_a_large_session_agreements_wait_until_they_are_needed(sparse, monkeypatch):
    monkeypatch.setattr("trellis.privacy.secagg.protocol.EAGER", 8)
    inputs, devices = some_inputs(40), enter(40)
    played = play(inputs, devices=devices)
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, inputs))
    state = devices.member(0).state
    assert len([e for e in state.epochs if e >= 0]) == graph.plan(40).neighbours
    assert state.private
    # Once all have been neighbours the key goes.
    for number, rest in enumerate(np.array_split(np.arange(1, 40), 6), 2):
        some = {int(c): inputs[int(c)] for c in (0, *rest)}
        play(some, devices=devices, number=number)
    assert devices.member(0).state.private == b""


def test_never_both_secrets_of_one_whatever_the_roll():
    # Of every neighbour a client gives a share of its self seed or the seed of their common mask.
    devices, server = (p := play(some_inputs(7), until="masked")).devices, p.server
    for survivors in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]):
        states = dict(devices.states)
        server.survivors = survivors
        server._macs = {c: {} for c in survivors}
        words = {c: devices.ask(c, "agree", server.roll()).macs for c in survivors}
        mine = [
            words[c][MAC_BYTES * (0) : MAC_BYTES] for c in survivors if c
        ]  # client 0 is everyone's first neighbour
        sealed = b"".join(server._sealed(c, 0) for c in survivors if c)
        question = Question(server.session.session, 1, pack(survivors[1:]), b"".join(mine), sealed)
        opened = devices.ask(0, "unmask", question)
        assert len(opened.shares) == 16 * len(survivors)
        assert len(opened.seeds) == 32 * (7 - len(survivors))
        devices.states = states


def test_words_on_another_set_or_of_too_few_open_nothing():
    devices, server = (p := play(some_inputs(7), until="masked")).devices, p.server
    server.close_masked()
    six = replace(server.roll(), survivors=pack(range(6)))
    told = {c: server.roll() if c < 4 else six for c in range(6)}  # two stories, 4 and 2 of 7
    for c in range(6):
        agreed = devices.ask(c, "agree", told[c])
        kept = [p for p in range(7 if c < 4 else 6) if p != c]
        server._macs[c] = {peer: agreed.macs[16 * i : 16 * i + 16] for i, peer in enumerate(kept)}
    with pytest.raises(Refused, match=r"4 of this client's holders agree.*threshold 5"):
        devices.ask(0, "unmask", server.question(0))
    # Forged and repeated words count for nothing.
    asked = server.question(0)
    with pytest.raises(Refused, match="1 of this client's holders agree"):
        devices.ask(0, "unmask", replace(asked, macs=bytes(len(asked.macs))))
    with pytest.raises(BadMessage, match="named twice"):
        devices.ask(0, "unmask", replace(asked, signers=asked.signers[:4] * 2))
    with pytest.raises(BadMessage, match="no neighbours in the sum"):
        devices.ask(0, "unmask", replace(asked, signers=pack([0]), macs=bytes(16)))


def told_apart(**change):
    """Play with client 0 told something else; return the round."""

    def tamper(stage, client, message):
        return replace(message, **change) if (stage, client) == ("order", 0) else message

    return play(some_inputs(7), tamper=tamper)


@pytest.mark.parametrize(
    "change",
    [
        {"participants": pack(range(6))},
        {"threshold": 6},
        {"neighbours": 7},
        {"fraction_bits": 20},
        {"largest": 3.0},
        {"group": "other"},
        {"stay": 5},
    ],
)
def test_a_client_that_was_told_something_else_shares_no_mask_with_anyone(change):
    if "participants" in change:
        with pytest.raises(BadMessage):
            told_apart(**change)
        return
    played = told_apart(**change)
    assert set(played.failed) == {0}
    np.testing.assert_array_equal(played.server.total_words(), plain(some_inputs(7), range(1, 7)))


def test_different_payloads_do_not_open():
    # A server that goes on all the same, as an active one would: the sum is noise.
    played = play(some_inputs(7), payload=lambda c: bytes([c == 0]) * 32, until="masked")
    server = played.server
    server._at_odds = lambda: []
    server.close_masked()
    for c in range(7):
        server.take_agreed(c, played.devices.ask(c, "agree", server.roll()))
    server.close_agreed()
    with pytest.raises(Refused, match="1 of this client's holders agree"):
        played.devices.ask(0, "unmask", server.question(0))
    for c in range(1, 7):
        server.take_opened(c, played.devices.ask(c, "unmask", server.question(c)))
    # The others agree; but client 0's shares are under pads that they do not know.
    with pytest.raises(Again, match="client-0 cannot be unmasked: 0 right shares"):
        server.total_words()


def test_different_directories_do_not_open():
    other = enter(7).session.close()

    def tamper(stage, client, message):
        if (stage, client) != ("meet", 0):
            return message
        return replace(message, keys=message.keys[:-32] + other.keys[-32:])

    played = play(some_inputs(7), tamper=tamper)
    assert set(played.failed) == {0}


# --- wrong answers ---------------------------------------------------------------------------


def liars_play(liars, inputs, drop=None, seeds=False):
    def tamper(stage, client, message):
        if stage == "unmask-reply" and client in liars:
            wrong = bytes(len(message.seeds)) if seeds else message.seeds
            return replace(message, shares=bytes(len(message.shares)), seeds=wrong)
        return message

    return play(inputs, tamper=tamper, drop=drop)


@pytest.mark.parametrize("count", [5, 8, 10, 20])
@pytest.mark.parametrize("drop", [False, True])
def test_wrong_shares_do_not_kill_a_sum_while_enough_right_ones_exist(count, drop):
    inputs = some_inputs(count)
    spare = count - graph.plan(count).threshold - drop
    for liars in itertools.islice(itertools.combinations(range(count - 1), spare), 12):
        played = liars_play(liars, inputs, {"masked": {count - 1}} if drop else None)
        np.testing.assert_array_equal(played.server.total_words(), plain(inputs, played.survivors))


def test_too_many_wrong_shares_are_told_by_name():
    played = liars_play({0, 1, 2}, some_inputs(7))
    with pytest.raises(Again, match="client client-0 cannot be unmasked: 4 right shares") as error:
        played.server.total_words()
    assert set(error.value.without) == {0, 1, 2}


def test_a_dealer_of_wrong_shares_is_told_by_name():
    def tamper(stage, client, message):
        if (stage, client) == ("masked-reply", 3):
            return replace(message, sealed=bytes(len(message.sealed)))
        return message

    with pytest.raises(Again, match="client client-3 cannot be unmasked") as error:
        play(some_inputs(7), tamper=tamper).server.total_words()
    assert set(error.value.without) == {3}


def test_wrong_seeds_are_told_by_name_and_the_round_is_made_again():
    inputs = some_inputs(7)
    played = liars_play({2}, inputs, {"masked": {6}}, seeds=True)
    assert "seed is not the one" in played.failed[2]
    with pytest.raises(Again, match="client-2 alone knew some of its masks") as error:
        played.server.total_words()
    assert set(error.value.without) == {2}
    left = {c: inputs[c] for c in (0, 1, 3, 4, 5)}
    again = play(left, devices=played.devices, number=2)
    np.testing.assert_array_equal(again.server.total_words(), plain(left, left))


def test_sealed_shares_that_were_changed_on_the_way_are_wrong_shares():
    def tamper(stage, client, message):
        if (stage, client) == ("unmask", 0):
            return replace(message, sealed=message.sealed[::-1])
        return message

    inputs = some_inputs(7)
    played = play(inputs, tamper=tamper)
    np.testing.assert_array_equal(played.server.total_words(), plain(inputs, inputs))


# --- what the server sees --------------------------------------------------------------------


class TinyMasker:
    """Masks in the ring of 2: a seed's mask is looked up, so that all masks can be enumerated."""

    def __init__(self, masks):
        self.masks = masks

    def add(self, vector, seed):
        vector[0] = (vector[0] + self.masks[seed]) % 2

    def subtract(self, vector, seed):
        vector[0] = (vector[0] - self.masks[seed]) % 2


def views(x, colluders, dropped):
    """Return how often the server with colluders sees what, over all masks, for inputs x in Z_2.

    It sees all masked values of those who stayed, their self masks, all masks that the colluders
    share, and the pair masks of the dropped with those who stayed.
    """
    everyone = range(len(x))
    pairs = list(itertools.combinations(everyone, 2))
    secrets = {u: bytes([u]) * 16 for u in everyone}
    names = {u: self_seed(secrets[u]) for u in everyone}
    seen = Counter()
    for drawn in itertools.product(range(2), repeat=len(x) + len(pairs)):
        masks = {names[u]: drawn[u] for u in everyone}
        masks |= {bytes(pair): value for pair, value in zip(pairs, drawn[len(x) :], strict=True)}
        view = []
        for u in everyone:
            vector = np.array([x[u]])
            seeds = {v: bytes(sorted((u, v))) for v in everyone if v != u}
            add_masks(TinyMasker(masks), vector, u, secrets[u], seeds)
            # A dropped client's vector may have come late: the server has it, not its self mask.
            view.append(int(vector[0]))
            view.append(masks[names[u]] if u != dropped else -1)
        known = {*colluders, dropped}
        given = zip(pairs, drawn[len(x) :], strict=True)
        view += [value for pair, value in given if known & set(pair)]
        seen[tuple(view)] += 1
    return seen


@pytest.mark.parametrize(("colluders", "dropped"), [((), -1), ((0,), -1), ((), 3), ((0,), 3)])
def test_the_view_is_the_same_for_inputs_with_the_same_honest_sum(colluders, dropped):
    # By enumeration of all masks of four clients in the ring of 2: inputs of the honest who stayed
    # with equal sums, whatever the dropped one's, give the same distribution of views; other sums
    # another.
    honest = [u for u in range(4) if u not in colluders and u != dropped]
    x = [1, 1, 0, 1]
    y = list(x)
    y[honest[0]], y[honest[1]] = (x[honest[0]] + 1) % 2, (x[honest[1]] - 1) % 2
    if dropped >= 0:
        y[dropped] = (x[dropped] + 1) % 2
    assert views(x, colluders, dropped) == views(y, colluders, dropped)
    z = list(x)
    z[honest[0]] = (x[honest[0]] + 1) % 2
    assert views(x, colluders, dropped) != views(z, colluders, dropped)


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


def test_masks_are_fresh_in_every_round():
    inputs, devices = some_inputs(3), enter(3)
    one = play(inputs, devices=devices, number=1).vectors
    two = play(inputs, devices=devices, number=2).vectors
    assert not any(np.any(one[c] == two[c]) for c in inputs)


def test_the_vector_of_a_dropped_client_stays_uniform_to_a_server_that_kept_it():
    # It came too late: the server learns the pair seeds, but never the self seed.
    inputs = {i: {"x": np.zeros(2000)} for i in range(4)}
    played = play(inputs, drop={"masked": {3}})
    vector, _, _ = played.devices.masked(3, played.server.order, inputs[3])
    seeds = {c: given[3] for c, given in played.server.opening.pair_seeds.items()}
    assert set(seeds) == {0, 1, 2}
    left = vector.copy()
    masker = Masker(left.size)
    for seed in seeds.values():
        masker.add(left, seed)  # the higher one had subtracted
    assert stats.chisquare(np.bincount(left.view(np.uint8), minlength=256)).pvalue > 1e-6
    assert np.any(left != 0)
