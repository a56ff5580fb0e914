"""A run that crashes between two rounds, its checkpoint written."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from trellis.strategies.core.base import StudyStrategy
from trellis.strategies.core.checkpoint import Checkpoint


class Crash(RuntimeError):
    """Ends a run."""


@contextmanager
def crashing_after(last: int):
    """Have a run that is made within end after round ``last``."""
    whole = StudyStrategy._round

    def made(self, grid, server_round):
        whole(self, grid, server_round)
        if server_round == last:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyStrategy, "_round", made)
        patch.setattr(Checkpoint, "due", lambda self: True)
        with pytest.raises(Crash):
            yield
