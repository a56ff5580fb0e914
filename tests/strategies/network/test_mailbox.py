"""The mailbox of servers in one process: along edges only, and everything is counted."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.strategies.network.mailbox import Mailbox
from trellis.strategies.topology.graph import topology

PATH = topology("path", 3).adjacency


def letter(value):
    return {"model": np.full((2, 3), float(value)), "pair": np.array(value)}


def test_letters_by_sender_come_out_by_receiver():
    mailbox = Mailbox(3)
    assert list(mailbox.own) == [0, 1, 2]
    told = {1: {0: letter(10), 2: letter(12)}, 0: {1: letter(1)}}
    came = mailbox.carry(4, told, PATH)
    assert {p: sorted(box) for p, box in came.items()} == {0: [1], 1: [0], 2: [1]}
    assert (int(came[2][1]["pair"]), int(came[0][1]["pair"])) == (12, 10)
    np.testing.assert_array_equal(came[1][0]["model"], np.ones((2, 3)))


def test_messages_and_bytes_are_counted_over_rounds():
    mailbox = Mailbox(3)
    for server_round in (1, 2):
        mailbox.carry(server_round, {0: {1: letter(1)}, 1: {0: letter(1), 2: letter(1)}}, PATH)
    assert (mailbox.messages, mailbox.bytes) == (6, 6 * (2 * 3 * 8 + 8))
    assert mailbox.carry(3, {}, PATH) == {0: {}, 1: {}, 2: {}}
    assert mailbox.messages == 6


@pytest.mark.parametrize(("sender", "receiver"), [(0, 2), (1, 1), (0, 3), (3, 0), (0, -2)])
def test_a_letter_along_no_edge_is_refused_by_name(sender, receiver):
    with pytest.raises(ValueError, match=f"round 7: server {sender} wrote to server {receiver}"):
        Mailbox(3).carry(7, {sender: {receiver: letter(1)}}, PATH)
