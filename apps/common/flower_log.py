"""The log of a ServerApp, as ``flwr run --stream`` and ``flwr log`` show it."""

from __future__ import annotations

import logging

from trellis.apps.common.settings import ConfigError
from trellis.apps.common.tables import DataError
from trellis.apps.outside import StudyNotLoaded
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.core.enrolment import StudyError

# Errors that say what to do: a trace would hide it.
_FOR_USERS = (StudyError, ConfigError, DataError, CheckpointError, StudyNotLoaded)


def log_through_flower() -> None:
    """Write our log where Flower's goes, and have the log of a failed run end with the reason."""
    ours, flower = logging.getLogger("trellis"), logging.getLogger("flwr")
    if not ours.handlers:
        ours.handlers = list(flower.handlers)
        ours.setLevel(logging.INFO)
        ours.propagate = False
        flower.addFilter(_Reason())


class _Reason(logging.Filter):
    """Shortens Flower's lines on an error of ours, and ends its last message with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change a record; all are kept."""
        error = record.exc_info[1] if record.exc_info else None
        # Flower wraps what a runtime raises in errors that only say that there was one.
        while type(error) is RuntimeError and error.__cause__ is not None:
            error = error.__cause__
        if error is not None:
            kind = "" if isinstance(error, _FOR_USERS) else f"{type(error).__name__}: "
            self.reason = f"the run failed: {kind}{' '.join(str(error).split())}"
            if isinstance(error, _FOR_USERS):
                record.msg, record.args = f"{record.getMessage()}: {error}", ()
                record.exc_info = record.exc_text = None
        elif self.reason and record.getMessage().startswith("Exit Code:"):
            record.msg, record.args = f"{record.getMessage()}\n\n{self.reason}", ()
        return True
