"""A run that crashes between two rounds, its checkpoint written."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.rounds import Rounds


class Crash(RuntimeError):
    """Ends a run."""


@contextmanager
def crashing_after(last: int):
    """Have a run that is made within end after round ``last``."""

    def ending(whole):
        def made(self, grid, server_round, *more):
            whole(self, grid, server_round, *more)
            if server_round == last:
                raise Crash

        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rounds, "_round", ending(Rounds._round))
        patch.setattr(Checkpoint, "due", lambda self: True)
        with pytest.raises(Crash):
            yield
