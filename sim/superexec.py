"""Flower's SuperExec, which can be woken: ``python -m trellis.sim.superexec`` and its own options.

It sleeps between two questions for work; SIGUSR1 ends that sleep. All that is private to Flower
here: its loop waits by ``time.sleep`` of its module, in the main thread.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from types import SimpleNamespace

_LOOP = "flwr.supercore.superexec.run_superexec"


class WakeableSleep:
    """A sleep that SIGUSR1 ends, also one that comes shortly before it; for the main thread."""

    def __init__(self) -> None:
        # By a pipe: a signal between two looks is not lost, and Python resumes a plain sleep.
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, lambda number, frame: None)

    def __call__(self, seconds: float) -> None:
        """Sleep until woken, for ``seconds`` at most."""
        if select.select([self._woken], [], [], seconds)[0]:
            os.read(self._woken, 4096)


def main() -> None:
    """Run a SuperExec with the arguments of the command line."""
    from flwr.supercore.cli import flower_superexec

    __import__(_LOOP)
    sys.modules[_LOOP].__dict__["time"] = SimpleNamespace(sleep=WakeableSleep())
    flower_superexec()


if __name__ == "__main__":
    main()
