from __future__ import annotations

import logging
import os
import signal

import pytest
from hypothesis import settings

# Before Flower is imported anywhere: nothing phones home.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")

# A shell lets what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a red test is red for everyone. Search for new ones with
# HYPOTHESIS_PROFILE=search.
settings.register_profile("repeat", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


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
