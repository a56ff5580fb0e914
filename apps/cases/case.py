"""What a case is made of, and how it is run: data, runs, one page.

A case's folder holds ``data`` (one sub-folder per study, one file per client), ``runs`` (one folder
per way of learning, in it one per split), ``case.json`` (what was asked) and ``index.html``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis.apps.common.results import FolderLock, RunResult, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.pages.page import Block

ASKED, DATA, RUNS, PAGE = "case.json", "data", "runs", "index.html"
_PLANNED = "planned.json"
_FORMAT = 1

# Called with how many runs are done, of how many, and what is run now.
Watch = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Planned:
    """One way of learning, to be run on every split.

    Attributes
    ----------
    name : a short key, also the name of its folder
    study : a key of `apps.STUDIES`
    words : what a reader calls it, such as "together, without privacy"
    settings : kebab-case settings; what is left out is chosen for the data. ``{data}`` in one is
        the folder of all prepared data, for files that are nobody's own
    data : the sub-folder of the prepared data
    """

    name: str
    study: str
    words: str
    settings: Mapping[str, Any]
    data: str

    def settings_in(self, folder: str) -> dict[str, Any]:
        """Return the settings for data that was prepared in ``folder``."""
        return {
            key: value.replace("{data}", folder) if isinstance(value, str) else value
            for key, value in self.settings.items()
        }


@dataclass(frozen=True)
class Story:
    """What the runs of a case say, for its page.

    Attributes
    ----------
    answer : a few sentences that answer the question, also where the answer is no; a line of
        the text is a paragraph
    learned : what was learned
    sure : how sure it is: splits, standard errors, edges that come back
    cost : what it cost in privacy: who saw what, what was spent, what is not covered
    better : whether it is better than learning alone, on the whole and by client
    careful : what this does not show
    numbers : the few that stand at the top, with what they are
    """

    answer: str
    learned: Sequence[Block]
    sure: Sequence[Block]
    cost: Sequence[Block]
    better: Sequence[Block]
    careful: Sequence[Block]
    numbers: Mapping[str, object] = field(default_factory=dict)


# A way of learning's name -> its runs, one per split, in the order of the seeds.
Runs = Mapping[str, Sequence[RunResult]]


@dataclass(frozen=True)
class Case:
    """Real data, the runs on it, and how their story is told.

    Attributes
    ----------
    name : the word that the command takes
    title : the heading of its page
    question : one plain sentence that ends with a question mark
    source : where the data is from, under which licence, how much there is
    prepare : writes the clients' files into a folder, one sub-folder per study; raises
        `trellis.apps.common.tables.DataError` with what to do where the data is not there
    planned : the ways of learning; with True reduced ones, to try it out
    story : what the runs say
    needs : what must be there before; empty where nothing has to
    client : what a client is
    """

    name: str
    title: str
    question: str
    source: str
    prepare: Callable[[Path], None]
    planned: Callable[[bool], list[Planned]]
    story: Callable[[Runs], Story]
    needs: str = ""
    client: str = "client"


def run_case(
    case: Case,
    out: Path,
    *,
    seeds: int = 5,
    quick: bool = False,
    force: bool = False,
    watch: Watch | None = None,
) -> Story:
    """Prepare the data, make the runs that are not there yet, write the page; return its story.

    Parameters
    ----------
    case : what to run
    out : its folder; what it holds of the same case is used again
    seeds : how many splits; split k has seed k, which says what records are held out
    quick : reduced runs
    force : make everything anew

    Raises
    ------
    ConfigError
        Where the folder holds something else.
    """
    if seeds < 1:
        raise ConfigError(f"seeds={seeds}: there must be one split at least")
    refuse_other_folder(case, out, quick=quick, force=force)
    lock = FolderLock(out)
    try:
        if force:
            _clear(out)
        asked = {"format": _FORMAT, "case": case.name, "quick": quick}
        write_atomically(out / ASKED, json.dumps(asked, indent=2).encode())
        _prepare(case, out / DATA)
        planned = case.planned(quick)
        runs = _make(planned, out, range(1, seeds + 1), watch or (lambda *_: None))
        story = case.story(runs)
        from .page import write

        write(case, planned, story, runs, out / PAGE, quick=quick)
    finally:
        lock.release()
    return story


def refuse_other_folder(case: Case, out: Path, *, quick: bool, force: bool) -> None:
    """Refuse to write into a folder that holds anything but this case.

    Raises
    ------
    ConfigError
        Names the folder, what it holds and what to do. With ``force`` any case may be replaced;
        files that are of none may not.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"out={str(out)!r}: is a file; name a folder")
    held = (
        sorted(path.name for path in out.iterdir() if path.name != ".lock") if out.exists() else []
    )
    if not held:
        return
    if ASKED not in held:
        some = ", ".join(held[:3]) + (" and more" if held[3:] else "")
        raise ConfigError(
            f"out={str(out)!r}: holds {some}, which no case left there; choose another folder with "
            "--out"
        )
    before = json.loads((out / ASKED).read_text())
    if force or before == {"format": _FORMAT, "case": case.name, "quick": quick}:
        return
    size = " (quick)" if before.get("quick") else ""
    raise ConfigError(
        f"out={str(out)!r}: holds the case {before.get('case')}{size}; choose another folder with "
        "--out, or --force to delete what that left and begin anew"
    )


def prepare_into(case: Case, folder: Path) -> None:
    """Write the clients' files, and nothing else, into a folder that is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: is not an empty folder; name a new one")
    case.prepare(folder)


def _clear(out: Path) -> None:
    for name in (RUNS, DATA):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / PAGE).unlink(missing_ok=True)


def _prepare(case: Case, folder: Path) -> None:
    """Write the data, whole or not at all; what is there already stays where it is the same."""
    for partial in folder.parent.glob(".data-*"):  # of a process that was killed
        shutil.rmtree(partial, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".data-") as name:
        made = Path(name) / DATA
        case.prepare(made)
        if folder.is_dir() and _digest(folder) == _digest(made):
            return
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _digest(folder: Path, pattern: str = "**/*") -> str:
    """Return what tells the contents of two folders apart."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.glob(pattern) if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


def _make(
    planned: Sequence[Planned], out: Path, seeds: Sequence[int], watch: Watch
) -> dict[str, list[RunResult]]:
    from trellis.apps.common.runner import run

    found: dict[str, list[RunResult]] = {one.name: [] for one in planned}
    total, done = len(planned) * len(seeds), 0
    for one in planned:
        data = out / DATA / one.data
        here = out / RUNS / one.name
        note = {
            "study": one.study,
            "settings": dict(one.settings),
            "data": one.data,
            "contents": [_digest(data), _digest(out / DATA, "*")],
        }
        same = _read(here / _PLANNED) == json.loads(json.dumps(note))
        if not same:
            shutil.rmtree(here, ignore_errors=True)  # runs of other settings, or of other data
            write_atomically(here / _PLANNED, json.dumps(note, indent=2).encode())
        for seed in seeds:
            watch(done, total, f"{one.study}, {one.words}, split {seed}")
            folder = here / f"seed-{seed}"
            result = _finished(folder, seed)
            if result is None:
                shutil.rmtree(folder, ignore_errors=True)  # what was begun and not finished
                # The page leads to one report per way of learning.
                with _quietly():
                    result = run(
                        one.study,
                        one.settings_in(str(out / DATA)),
                        data=data,
                        seed=seed,
                        out=folder,
                        report=seed == seeds[0],
                    )
            found[one.name].append(result)
            done += 1
    watch(done, total, "")
    return found


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def _finished(folder: Path, seed: int) -> RunResult | None:
    """Return a run that completed; None where it has to be made."""
    if not (folder / "run.json").is_file():
        return None
    result = RunResult.load(folder)
    return result if result.status == "completed" and result.seed == seed else None


@contextmanager
def _quietly() -> Iterator[None]:
    """Run without warnings on the terminal: reports have them, and the same ones for every run."""
    log = logging.getLogger("trellis")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with one_blas_thread():
            yield
    finally:
        log.setLevel(level)
