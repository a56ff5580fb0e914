"""Sealed letters between servers: who may open one, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.envelope import Header, OtherLife, Seals
from trellis.privacy.servers.identity import Greeting

SESSION = b"a run of servers"
CONTENT = b"what one server tells another"


def greeting(seals):
    return Greeting(seals.server, seals.epoch, seals.public, b"", "terms")


@pytest.fixture
def three():
    return [Seals(server, 10 + server, SESSION) for server in range(3)]


def test_the_receiver_reads_what_was_written_and_of_which_round(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    assert CONTENT not in letter
    assert three[1].open(greeting(three[0]), letter) == (4, CONTENT)


@pytest.mark.parametrize("content", [b"", b"x" * 100_000])
def test_letters_of_any_length(three, content):
    letter = three[0].seal(greeting(three[1]), 0, content)
    assert three[1].open(greeting(three[0]), letter) == (0, content)


def test_a_third_server_cannot_open_it(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    with pytest.raises(BadMessage, match="a letter from server 0 to 1 where one from 0 to 2 was"):
        three[2].open(greeting(three[0]), letter)
    # Neither where it says to be the receiver: it has another key.
    liar = Seals(1, three[1].epoch, SESSION)
    with pytest.raises(BadMessage, match="has not sealed, or that was changed"):
        liar.open(greeting(three[0]), letter)


def test_a_third_server_cannot_write_in_anothers_name(three):
    liar = Seals(0, three[0].epoch, SESSION)
    forged = liar.seal(greeting(three[1]), 4, CONTENT)
    with pytest.raises(BadMessage, match="a letter that server 0 has not sealed"):
        three[1].open(greeting(three[0]), forged)


def test_a_letter_is_not_one_in_the_other_direction(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    with pytest.raises(BadMessage, match="from server 0 to 1 where one from 1 to 0"):
        three[0].open(greeting(three[1]), letter)
    # With the header turned round it is under the key of the other direction.
    size = int.from_bytes(letter[:2], "big")
    turned = Header(1, 0, three[1].epoch, three[0].epoch, 4).encode()
    assert len(turned) == size
    with pytest.raises(BadMessage, match="has not sealed, or that was changed"):
        three[0].open(greeting(three[1]), letter[:2] + turned + letter[2 + size :])


def test_the_keys_of_the_directions_differ(three):
    one, other = three[0], three[1]
    there = Header(0, 1, one.epoch, other.epoch, 1)
    back = Header(1, 0, other.epoch, one.epoch, 1)
    nonce = b"n" * 12
    sealed = {
        name: key.encrypt(nonce, CONTENT, b"")
        for name, key in {
            "there": one._key(greeting(other), there),
            "there, at the other end": other._key(greeting(one), there),
            "back": one._key(greeting(other), back),
        }.items()
    }
    assert sealed["there"] == sealed["there, at the other end"]
    assert sealed["there"] != sealed["back"]


def test_a_letter_of_another_run_does_not_open(three):
    """The same keys and epochs: only the session differs."""
    other = Seals(1, three[1].epoch, b"another run")
    other._private, other.public = three[1]._private, three[1].public
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    with pytest.raises(BadMessage, match="has not sealed, or that was changed"):
        other.open(greeting(three[0]), letter)


def test_a_letter_from_or_to_an_earlier_life_is_told_apart(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    with pytest.raises(OtherLife, match="of another start of a server"):
        Seals(1, 99, SESSION).open(greeting(three[0]), letter)
    with pytest.raises(OtherLife):
        three[1].open(greeting(Seals(0, 99, SESSION)), letter)
    # Nor does an epoch that is written over help: it is in the key.
    size = int.from_bytes(letter[:2], "big")
    newer = Header(0, 1, 10, 99, 4).encode()
    with pytest.raises(BadMessage, match="has not sealed, or that was changed"):
        Seals(1, 99, SESSION).open(greeting(three[0]), letter[:2] + newer + letter[2 + size :])


def test_a_change_of_any_byte_is_refused(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    for place in range(len(letter)):
        for bit in (1, 128):
            changed = bytearray(letter)
            changed[place] ^= bit
            with pytest.raises(BadMessage):
                three[1].open(greeting(three[0]), bytes(changed))


def test_a_letter_cut_short_or_drawn_out_is_refused(three):
    letter = three[0].seal(greeting(three[1]), 4, CONTENT)
    for length in range(len(letter)):
        with pytest.raises(BadMessage):
            three[1].open(greeting(three[0]), letter[:length])
    with pytest.raises(BadMessage):
        three[1].open(greeting(three[0]), letter + b"x")


def test_nonces_differ(three):
    to = greeting(three[1])
    letters = {three[0].seal(to, 4, CONTENT) for _ in range(200)}
    size = 2 + int.from_bytes(next(iter(letters))[:2], "big")
    assert len({letter[size : size + 12] for letter in letters}) == 200


def test_every_life_has_a_key_of_its_own():
    assert len({Seals(0, 1, SESSION).public for _ in range(5)}) == 5


@pytest.mark.parametrize(
    "header", [b"", b"[]", b"3", b"[1,2,3,4]", b'[1,2,3,4,"5"]', b"[1,2,3,4,5.0]"]
)
def test_no_header_is_refused(header):
    with pytest.raises(BadMessage, match="without a header"):
        Header.decode(header)


def test_a_key_that_nothing_can_be_sealed_with_is_refused(three):
    """Of small order: whatever is agreed on with it is the same for all."""
    weak = replace(greeting(three[0]), box=bytes(32))
    with pytest.raises(BadMessage, match="the key of server 0 is no valid key"):
        three[1].check(weak)
    three[1].check(greeting(three[0]))
