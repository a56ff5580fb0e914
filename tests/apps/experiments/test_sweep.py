"""Many runs at once: in order, with the same bits wherever and however many run side by side."""

from __future__ import annotations

import io
import logging
import os
import time

import joblib
import numpy as np
import pytest
from rich.console import Console

from trellis.apps.experiments.sweep import Job, on_all_cores, sweep

WAYS = [{"backend": "loky", "n_jobs": 2}, {"backend": "threading", "n_jobs": 3}, {"n_jobs": 1}]


@pytest.fixture
def console():
    return Console(file=io.StringIO())


def spectrum(seed):
    time.sleep(0.2 if seed == 0 else 0.0)  # the first is finished last
    a = np.random.default_rng(seed).normal(size=(300, 300))
    return os.getpid(), np.linalg.eigvalsh(a @ a.T)


def test_values_are_in_order_and_the_same_bits_everywhere(console):
    found = []
    for way in WAYS:
        with joblib.parallel_config(**way):
            found.append(on_all_cores(spectrum, range(9), console, "spectra"))
    pids = [{pid for pid, _ in values} for values in found]
    assert os.getpid() not in pids[0]
    assert pids[1:] == [{os.getpid()}] * 2
    for values in found[1:]:
        for (_, one), (_, other) in zip(found[0], values, strict=True):
            assert one.tobytes() == other.tobytes()


def test_nothing_to_do_is_done(console):
    assert on_all_cores(spectrum, [], console, "nothing") == []


def test_runs_are_the_same_bits_everywhere(console):
    settings = {"rounds": 3, "nodes": 8, "privacy": "dp", "epsilon": 20.0}
    jobs = [Job("consensus-graph", settings, seed, (seed,), ("consensus",)) for seed in (1, 2, 3)]
    level = logging.getLogger("trellis").level
    found = []
    for way in WAYS:
        with joblib.parallel_config(**way):
            found.append(sweep(jobs, console, "runs"))
    assert [outcome.job.seed for outcome in found[0]] == [1, 2, 3]
    for outcomes in found[1:]:
        for one, other in zip(found[0], outcomes, strict=True):
            assert one.headline == other.headline
            assert one.arrays["consensus"].tobytes() == other.arrays["consensus"].tobytes()
    assert logging.getLogger("trellis").level == level
