"""Flower's SuperNode with short waits: ``python -m sim.supernode`` and its own options.

A SuperNode asks for messages every three seconds, and looks every half second whether its ClientApp
has answered: in a study of many short rounds most of a round is waiting. Here it waits a tenth of
the time since its last message, at least `SHORTEST` and at most Flower's own three seconds: a round
is late by a tenth at most, and a device that nobody asks is as quiet as Flower makes it.

All that is private to Flower here is that its main loop waits by ``time.sleep`` of its module, with
a second or more between two questions to the server and less while a ClientApp works.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

SHORTEST = 0.1  # seconds between two questions to the SuperLink, right after a message
AT_WORK = 0.05  # seconds between two looks for the ClientApp's reply, in this process's memory
_SHARE = 0.1


class AdaptiveSleep:
    """What the SuperNode's main loop calls in place of ``time.sleep``.

    Parameters
    ----------
    sleep, clock : of the ``time`` module
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._last = clock()  # of the last sign of work

    def __call__(self, seconds: float) -> None:
        """Sleep for ``seconds`` at most, shorter where something may come soon."""
        if seconds < 1.0:  # a ClientApp works on a message
            self._last = self._clock()
            self._sleep(min(seconds, AT_WORK))
            return
        since = self._clock() - self._last
        self._sleep(min(seconds, max(SHORTEST, _SHARE * since)))


def install() -> None:
    """Let this process's SuperNode wait adaptively."""
    # By its name in sys.modules: the package has a function of the same name as the module.
    import flwr.supernode.start_client_internal  # noqa: F401

    loop = sys.modules["flwr.supernode.start_client_internal"]
    loop.__dict__["time"] = SimpleNamespace(**vars(time) | {"sleep": AdaptiveSleep()})


def main() -> None:
    """Run a SuperNode with the arguments of the command line."""
    from flwr.supernode.cli import flower_supernode

    install()
    flower_supernode()


if __name__ == "__main__":
    main()
