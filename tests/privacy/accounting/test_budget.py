from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal

import pytest

from trellis.privacy.accounting.budget import DeviceLedger, Policy, PrivacyRefused
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.mechanisms.gaussian import gaussian_sigma


def event(name: str, epsilon: float = 1.0) -> PrivacyEvent:
    return PrivacyEvent(name, "x", 0, epsilon, 1e-5, gaussian_sigma(epsilon, 1e-5, 1.0), 1.0)


def ledger(folder, budget: float = 2.0) -> DeviceLedger:
    return DeviceLedger(folder, Policy(budget, 1e-5, True))


def test_a_budget_lasts_for_life(tmp_path):
    first = ledger(tmp_path)
    first.reserve(event("a"))
    first.commit("a")
    later = ledger(tmp_path)  # another run, another process
    assert later.spent() == pytest.approx(1.0)
    later.reserve(event("b"))
    assert 1.4 < later.spent() < 2.0  # Gaussians compose better than their epsilons add
    with pytest.raises(PrivacyRefused, match=r"this device's max-epsilon 2; 1\.4\d+ is spent"):
        ledger(tmp_path).reserve(event("c", 1.5))
    assert len(ledger(tmp_path).events()) == 2


def test_the_same_release_again_costs_nothing(tmp_path):
    for _ in range(5):
        ledger(tmp_path, 1.0).reserve(event("a"))
        ledger(tmp_path, 1.0).commit("a")
    assert ledger(tmp_path).spent() == pytest.approx(1.0)
    with pytest.raises(PrivacyRefused, match="with other numbers"):
        ledger(tmp_path).reserve(event("a", 0.5))


def test_a_crash_between_release_and_commit_is_counted(tmp_path):
    ledger(tmp_path).reserve(event("a"))
    state = json.loads((tmp_path / "ledger.json").read_text())["entries"]["a"]["state"]
    assert state == "reserved"
    assert ledger(tmp_path).spent() == pytest.approx(1.0)


def _reserve_and_die(folder):
    ledger(folder).reserve(event("a"))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_device_remembers(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_reserve_and_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert ledger(tmp_path).spent() == pytest.approx(1.0)


def _reserve(folder, name, results):
    try:
        ledger(folder, 1.2).reserve(event(name))
        results.put(True)
    except PrivacyRefused:
        results.put(False)


def test_two_processes_cannot_both_spend_the_last_of_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_reserve, args=(tmp_path, f"e{i}", results)) for i in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(results.get() for _ in workers) == [False, False, True]


def test_a_damaged_ledger_releases_nothing(tmp_path):
    ledger(tmp_path).reserve(event("a"))
    (tmp_path / "ledger.json").write_text("{half")
    with pytest.raises(PrivacyRefused, match=r"ledger\.json cannot be read"):
        ledger(tmp_path).reserve(event("b"))
    (tmp_path / "ledger.json").write_text('{"version": 7, "entries": {}}')
    with pytest.raises(PrivacyRefused, match="version 7"):
        ledger(tmp_path).spent()


def test_commit_needs_a_reservation(tmp_path):
    with pytest.raises(ValueError, match="never reserved"):
        ledger(tmp_path).commit("a")


@pytest.mark.parametrize("mode", ["none", "paper"])
def test_a_device_that_requires_privacy_refuses_less(mode):
    for config in ({"max-epsilon": 3}, {"require-privacy": True}):
        policy = Policy.from_node_config(config)
        policy.permit("dp")
        with pytest.raises(PrivacyRefused, match=f"requires privacy='dp'.*{mode}"):
            policy.permit(mode)
    Policy.from_node_config({}).permit(mode)


@pytest.mark.parametrize(
    "config",
    [{"max-epsilon": "3"}, {"max-epsilon": 0}, {"max-epsilon": -1.0}, {"max-epsilon": True},
     {"max-epsilon": math.nan}, {"delta": 1.0}, {"require-privacy": "yes"}],
)  # fmt: skip
def test_a_typing_error_is_not_no_limit(config):
    with pytest.raises(ValueError, match=next(iter(config))):
        Policy.from_node_config(config)
