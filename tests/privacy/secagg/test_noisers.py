"""How many clients' noise a device counts on, and what it insists on for that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trellis.privacy.secagg.errors import Refused
from trellis.privacy.secagg.graph import plan
from trellis.privacy.secagg.messages import pack
from trellis.privacy.secagg.protocol import Policy
from trellis.privacy.secagg.ring import Ring
from trellis.privacy.secagg.server import ServerRound

from .rounds import PAYLOAD, enter, some_inputs

ANYONE = Policy(count_on="anyone")


def begun(devices, client, order):
    member = devices.member(client)
    member.begin(order, PAYLOAD)
    return member


def order_of(devices, clients, stay, chosen=None):
    return ServerRound(
        devices.session,
        1,
        list(range(clients)),
        chosen or plan(clients, clients - 1),
        ring=Ring(20),
        stay=stay,
    )


@pytest.mark.parametrize(
    ("clients", "stay", "colluding", "expected"),
    [
        (12, 12, 0.0, 12),
        (12, 10, 0.0, 10),
        (12, 10, 0.1, 9),
        (12, 0, 0.0, 1),  # a server that lets everyone go gets the whole noise of each
        (12, 10, 0.3, 1),  # beyond 2 t - h - 1 colluders the sum may open in parts
        (5, 5, 0.19, 5),  # rounded down
    ],
)
def test_a_member_counts_on_who_must_stay_less_who_may_collude(clients, stay, colluding, expected):
    devices = enter(clients, policy=ANYONE)
    member = begun(devices, 0, order_of(devices, clients, stay).order)
    assert member.noisers(colluding) == expected


def test_the_owners_doubt_counts_where_it_is_larger():
    devices = enter(12, policy=replace(ANYONE, colluding=0.17))
    member = begun(devices, 3, order_of(devices, 12, 12).order)
    assert member.noisers(0.0) == 10
    assert member.noisers(0.25) == 1


def test_two_of_three_are_too_few_to_open_for_anyone_to_be_counted_on():
    devices = enter(3, policy=ANYONE)
    two = begun(devices, 0, order_of(devices, 3, 3, plan(3, 2, 2)).order)
    assert two.noisers() == 1
    devices = enter(3, policy=ANYONE)
    three = begun(devices, 0, order_of(devices, 3, 3, plan(3, 2, 3)).order)
    assert three.noisers() == 3


@pytest.mark.parametrize("policy", [Policy(), Policy(count_on="nobody")])
def test_without_signed_keys_nobody_counts(policy):
    devices = enter(6, policy=policy)
    assert begun(devices, 0, order_of(devices, 6, 6).order).noisers() == 1
    assert begun(devices, 1, order_of(devices, 6, 6).order).noisers(anyone=True) == 6


def test_more_than_there_are_cannot_stay():
    devices = enter(4, policy=ANYONE)
    with pytest.raises(Refused, match="cannot stay"):
        begun(devices, 0, replace(order_of(devices, 4, 4).order, stay=5))


def test_a_device_gives_no_word_on_a_sum_of_fewer_than_must_stay():
    devices, inputs = enter(6, policy=ANYONE), some_inputs(6)
    server = order_of(devices, 6, 5)
    for client in range(6):
        vector, beside, _ = devices.masked(client, server.order, inputs[client])
        server.take_masked(client, beside, vector)
    server.close_masked()
    few = replace(server.roll(), survivors=pack([0, 1, 2, 3]))
    with pytest.raises(Refused, match="at least 5"):
        devices.ask(0, "agree", few)


def test_clients_told_different_numbers_do_not_add_up():
    devices, inputs = enter(5, policy=ANYONE), some_inputs(5)
    server = order_of(devices, 5, 5)
    lie = replace(server.order, stay=4)
    for client in range(5):
        vector, beside, _ = devices.masked(
            client, lie if client == 2 else server.order, inputs[client]
        )
        server.take_masked(client, beside, vector)
    with pytest.raises(Exception, match="left"):
        server.close_masked()
    assert 2 in server.refused


def test_noise_is_in_the_sum_and_nothing_else_changes():
    devices, inputs = enter(4, policy=ANYONE), some_inputs(4)
    server = order_of(devices, 4, 4)
    noise = np.arange(13, dtype=np.int64) - 6
    for client in range(4):
        member = begun(devices, client, server.order)
        vector, beside, _ = member.mask(inputs[client], noise if client == 1 else None)
        devices.states[client] = member.state.to_bytes()
        server.take_masked(client, beside, vector)
    server.close_masked()
    for client in range(4):
        server.take_agreed(client, devices.ask(client, "agree", server.roll()))
    for client in server.close_agreed():
        server.take_opened(client, devices.ask(client, "unmask", server.question(client)))
    total = server.total()
    plain = {k: sum(np.rint(i[k] * 2**20) for i in inputs.values()) / 2**20 for k in ("a", "b")}
    found = np.concatenate([(total[k] - plain[k]).ravel() for k in ("a", "b")])
    np.testing.assert_array_equal(found * 2**20, noise)
