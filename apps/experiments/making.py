"""What the function of a figure is given: its numbers, its folder, and cores that remember.

What one of many jobs has found is kept until the whole figure is made, under a name that is made of
the job and of all our code: a figure that was interrupted goes on where it was, and code that has
changed begins anew. What is kept is pickled: it is a cache of one's own in one's own folder.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from trellis.apps.common.results import write_atomically
from trellis.apps.outside import folders

from .sweep import Job, Outcome, in_processes, run_job, save_plot, show_rows, write_rows

Item = TypeVar("Item")
Found = TypeVar("Found")

_ROOT = Path(__file__).resolve().parents[2]
_OURS = ("apps", "strategies", "privacy", "sim")


@dataclass(frozen=True)
class Making:
    """One figure that is being made.

    Parameters
    ----------
    name : str
        The figure's, which its files begin with.
    out : Path
        Where its files go.
    numbers : mapping
        What its TOML says for the size that is made.
    """

    name: str
    out: Path
    console: Console
    numbers: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key not in self.numbers:
            raise KeyError(f"{self.name}.toml: [full] has no {key!r}")
        return self.numbers[key]

    @property
    def seeds(self) -> range:
        """The seeds, ``seeds`` of them from ``first-seed`` (1 by default)."""
        first = int(self.numbers.get("first-seed", 1))
        return range(first, first + int(self["seeds"]))

    def on_all_cores(
        self, function: Callable[[Item], Found], items: Sequence[Item], title: str = ""
    ) -> list[Found]:
        """Return the function's value for every item, in order, with a progress bar.

        What was found before an interruption is read, not computed again.
        """
        places = [self._kept / f"{_digest(function, item)}.pickle" for item in items]
        found: dict[int, Found] = {}
        for place, path in enumerate(places):
            if path.is_file():
                found[place] = pickle.loads(path.read_bytes())
        left = [place for place in range(len(items)) if place not in found]
        if found:
            self.console.print(f"{self.name}: {len(found)} of {len(items)} were found before")
        title = title or self.name
        for number, value in in_processes(
            function, [items[place] for place in left], self.console, title
        ):
            place = left[number]
            found[place] = value
            write_atomically(places[place], pickle.dumps(value))
        return [found[place] for place in range(len(items))]

    def sweep(self, jobs: Sequence[Job], title: str = "") -> list[Outcome]:
        """Run the jobs on all cores, in order, with a progress bar."""
        log = logging.getLogger("trellis")
        level = log.level
        try:
            return self.on_all_cores(run_job, jobs, title)
        finally:
            log.setLevel(level)  # where jobs ran in this process

    def table(self, rows: Sequence[Mapping[str, Any]], part: str = "", *, show: str = "") -> None:
        """Write a table as csv; where ``show`` is its title, print it too."""
        if show:
            show_rows(rows, show, self.console)
        write_rows(self.out / f"{self._stem(part)}.csv", rows, self.console)

    def plot(self, figure: Any, part: str = "") -> None:
        """Write a plot as png and svg."""
        save_plot(figure, self.out / self._stem(part))

    def forget(self) -> None:
        """Delete what was kept for an interruption."""
        shutil.rmtree(self._kept, ignore_errors=True)

    @property
    def _kept(self) -> Path:
        return self.out / ".kept" / self.name

    def _stem(self, part: str) -> str:
        return f"{self.name}-{part}" if part else self.name


def _digest(function: Callable[..., Any], item: Any) -> str:
    return hashlib.sha256(pickle.dumps((function, item, code_digest()))).hexdigest()


@cache
def code_digest() -> str:
    """Return a digest of all our code, and of the numbers beside it."""
    digest = hashlib.sha256()
    for folder, path in _sources():
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[tuple[Path, Path]]:
    """Yield every file of ours, and of studies of other packages, with the folder it is in."""
    for folder in (*(_ROOT / name for name in _OURS), *folders()):
        for pattern in ("*.py", "*.toml"):
            for path in sorted(folder.rglob(pattern)):
                yield folder.parent, path
