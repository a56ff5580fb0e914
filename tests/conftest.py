from __future__ import annotations

import logging
import os
import random
import signal

import pytest
from hypothesis import settings

# Before Flower is imported anywhere: nothing phones home.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")

# Before numpy and torch are: one thread in each process, for the workers share the cores, and so
# does Flower's simulation with its clients.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell lets what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same few examples in every run: a red test is red for everyone. Search for new ones, and
# more of them, with HYPOTHESIS_PROFILE=search. No deadline: how long an example takes depends on
# what else runs here.
settings.register_profile("repeat", derandomize=True, max_examples=25, deadline=None)
settings.register_profile("search", derandomize=False, max_examples=200, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the tests that start Flower: the longest, and they wait while others compute."""
    items.sort(key=lambda item: "flower" not in item.keywords)
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
        # A module's tests stay together: its fixtures are made once, and some take a minute.
        modules = {path: k for k, path in enumerate(dict.fromkeys(item.path for item in items))}
        items.sort(key=lambda item: modules[item.path])


@pytest.fixture(autouse=True)
def _own_logging():
    """Take back what a command or a ServerApp does to our logger: caplog would hear nothing."""
    ours = logging.getLogger("trellis")
    handlers, level, propagate = list(ours.handlers), ours.level, ours.propagate
    yield
    ours.handlers, ours.propagate = handlers, propagate
    ours.setLevel(level)


@pytest.fixture(autouse=True)
def _quiet_flower():
    logging.getLogger("flwr").setLevel(logging.ERROR)
