"""``python tests/killed_run.py OUT KILLS ARGUMENTS``: a run that is killed again and again.

``ARGUMENTS`` are those of ``trellis run``. ``KILLS`` says where the run is to end as by
``kill -9``, ``place:times`` with commas between: at the ``times``-th time that it comes by there,
see `PLACES`.
After each the run is resumed, in a process of its own, and after the last it goes on to its end.
Every round is a checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from trellis.apps.command import main
from trellis.apps.common.files.metrics_file import MetricsFile
from trellis.strategies.core.checkpoint import Checkpoint
from trellis.strategies.core.history.file import RowFile
from trellis.strategies.rounds import Rounds

PLACES = (
    "rows half written",
    "rows written",
    "state half written",
    "state not renamed",
    "state renamed",
    "line half written",
    "round",
    # When all rounds are done.
    "result.npz renamed",
    "run.json not renamed",
)


class Killer:
    """Counts how often the run came to its place."""

    def __init__(self, place: str, times: int) -> None:
        self.place, self.left = place, times

    def at(self, place: str) -> bool:
        """Return whether it is time."""
        self.left -= place == self.place
        return place == self.place and self.left == 0

    def kill_at(self, place: str) -> None:
        """End this process, without a chance to tidy up, if it is time."""
        if self.at(place):
            kill()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(killer: Killer) -> None:
    """Have the run come by its killer in all places."""
    replace, fsync, add = os.replace, os.fsync, RowFile.add
    line = MetricsFile.add

    def replacing(source, target, **more):
        name = {"state.npz": "state"}.get(Path(target).name, Path(target).name)
        killer.kill_at(f"{name} not renamed")
        replace(source, target, **more)
        killer.kill_at(f"{name} renamed")

    def syncing(handle):
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        place = {"rows.f8": "rows half written", ".state.npz.partial": "state half written"}
        if name in place and killer.at(place[name]):
            size = os.fstat(handle).st_size
            os.ftruncate(handle, max(size - 11, 0))  # what had not reached the disk
            kill()
        fsync(handle)

    def adding(self, rows, count):
        found = add(self, rows, count)
        killer.kill_at("rows written")
        return found

    def writing(self, rows):
        line(self, rows)
        if killer.at("line half written"):
            os.truncate(self.path, self.path.stat().st_size - 7)
            kill()

    def counting(whole_round):
        def counted(self, *arguments):
            killer.kill_at("round")
            whole_round(self, *arguments)

        return counted

    os.replace, os.fsync, RowFile.add = replacing, syncing, adding
    MetricsFile.add = writing
    Rounds._round = counting(Rounds._round)
    Checkpoint.due = lambda self: True


def attempt(arguments: list[str], killer: Killer) -> int:
    """Run in a process of its own, which needs to import nothing; return its wait status."""
    child = os.fork()
    if not child:
        code = 1
        try:
            arm(killer)
            code = main(arguments)
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def run(out: Path, kills: list[str], arguments: list[str]) -> int:
    """Have a run killed, resumed and killed again; return the exit code of its end."""
    for kill_at in [*kills, "end:1"]:
        place, _, times = kill_at.partition(":")
        again = ["--resume", str(out)] if (out / "run.json").is_file() else ["--out", str(out)]
        status = attempt(["run", *arguments, *again], Killer(place, int(times)))
        print(kill_at, status, flush=True)
        if place != "end" and status != signal.SIGKILL:
            return 2
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
