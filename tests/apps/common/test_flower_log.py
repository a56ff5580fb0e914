"""The log of a failed run ends with the reason, in one line."""

from __future__ import annotations

import logging

import pytest

from trellis.apps.common.flower_log import log_through_flower
from trellis.strategies.core.enrolment import StudyError


@pytest.fixture
def flower():
    """Flower's logger as a ServerApp finds it, and the lines that reach its console."""
    ours, flower = logging.getLogger("trellis"), logging.getLogger("flwr")
    before = ours.handlers, flower.handlers, flower.filters, flower.level
    lines: list[str] = []

    class Console(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    ours.handlers, flower.handlers, flower.filters = [], [Console()], []
    flower.setLevel(logging.INFO)
    log_through_flower()
    yield flower, lines
    ours.handlers, flower.handlers, flower.filters = before[:3]
    flower.setLevel(before[3])


def fail(flower: logging.Logger, error: Exception) -> None:
    """Log what Flower logs of an exception."""
    try:
        raise error
    except Exception as raised:
        flower.error("%s raised an exception", "Simulation", exc_info=raised)
    flower.error("Exit Code: 700\n\nFor more information, visit: <https://flower.ai>")


def test_an_error_for_users_has_no_trace_and_is_the_last_line(flower):
    fail(flower[0], StudyError("2 of 3 clients could be enrolled.\n  client-3: no file"))
    text = "\n".join(flower[1])
    assert "Traceback" not in text
    assert text.splitlines()[-1] == (
        "the run failed: 2 of 3 clients could be enrolled. client-3: no file"
    )


def test_any_other_error_keeps_its_trace_and_ends_with_one_line(flower):
    fail(flower[0], KeyError("x"))
    assert "Traceback" in "\n".join(flower[1])
    assert flower[1][-1].splitlines()[-1] == "the run failed: KeyError: 'x'"


def test_what_flower_wraps_is_unwrapped(flower):
    wrapped = RuntimeError("An error was encountered. Ending simulation.")
    wrapped.__cause__ = RuntimeError("Simulation Runtime crashed.")
    wrapped.__cause__.__cause__ = OSError("no space left")
    fail(flower[0], wrapped)
    assert flower[1][-1].splitlines()[-1] == "the run failed: OSError: no space left"


def test_a_run_that_completes_is_logged_as_it_is(flower):
    flower[0].info("")
    logging.getLogger("trellis.run").info("done")
    assert flower[1] == ["", "done"]
