"""``trellis run``: one study; `run_all` runs all of them."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.common.settings import ConfigError

from .closing import show
from .given import StudyNames, add_settings, assignments, settings_file

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser("run", help="run a study (or all)")
    command.add_argument(
        "study",
        nargs="?",
        choices=StudyNames("all"),
        metavar="STUDY",
        help="its name, or all; not needed with --resume",
    )
    command.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file")
    command.add_argument("--data", type=Path, metavar="DIR", help="one file per client")
    command.add_argument(
        "--engine",
        choices=("local", "flower"),
        default="local",
        help="in this process, or in Flower's simulation; the same bits",
    )
    command.add_argument("--seed", type=int, help="the same seed, the same result; 1 by default")
    command.add_argument("--out", type=Path, metavar="DIR", help="keep result and report here")
    command.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    command.add_argument("--force", action="store_true", help="delete the run that --out holds")
    command.add_argument("--workers", type=int, default=0, help="threads of the local engine")
    add_settings(command)
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Run and show the closing table."""
    if options.study == "all":
        from .run_all import run_all

        return run_all(options, console)
    with _uncollected():
        from trellis.apps.common.progress import display_on, listening
        from trellis.apps.common.runner import run

    settings, seed, data, out = requested(options)
    options.resumable = out
    with display_on(console) as display, listening(display):
        result = run(
            options.study,
            settings,
            data=data,
            engine=options.engine,
            seed=seed,
            out=out,
            resume=options.resume is not None,
            force=options.force,
            workers=options.workers,
        )
        display.finish(options.study)
    show(console, [result])
    return 0


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let the garbage collector pass over what is imported here, Flower above all.

    Modules stay until the end. To look through them while they load, and once more when the
    process ends, is a tenth of the time of a short run. Where Flower is loaded already, by a
    program that has objects of its own, the collector stays as it is.
    """
    if "flwr" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def requested(
    options: argparse.Namespace,
) -> tuple[dict[str, Any], int, Path | None, Path | None]:
    """Return settings, seed, data and output folder: from the run to resume, file and options.

    Where the options name no study, it is that of the run to resume.
    """
    from trellis.apps.common.results import RunResult

    settings: dict[str, Any] = {}
    seed, data, out = 1, options.data, options.out
    if options.resume is not None:
        if out is not None and out.resolve() != options.resume.resolve():
            raise ConfigError(f"--out {out}: a run goes on in its own folder, leave --out away")
        before = RunResult.load(options.resume)
        if options.study is None:
            options.study = before.study
        if before.study != options.study:
            raise ConfigError(
                f"{options.resume} holds a run of {before.study}, not of {options.study}: name "
                f"{before.study}, or none"
            )
        settings, seed, out = dict(before.config), before.seed, options.resume
        data = data or (Path(before.data) if before.data else None)
    if options.study is None:
        raise ConfigError(f"name a study, one of {', '.join(StudyNames())}, or all")
    if options.config is not None:
        settings |= settings_file(options.config, options.study)
    settings |= assignments(options)
    return settings, seed if options.seed is None else options.seed, data, out
