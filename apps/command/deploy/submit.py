"""``trellis deploy run``: settings that fit, one submission, its progress, its true end."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say
from trellis.apps.common.settings import ConfigError

from .graph_settings import server_alone

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.folder import Federation


def act_run(options: argparse.Namespace, console: Console) -> int:
    """Submit a study to a federation and follow it; 0 only where it completed.

    Ctrl-C leaves the run going, and says how to follow it further and how to stop it: devices may
    have spent part of their budgets on it already.
    """
    from trellis.apps.command.run import requested
    from trellis.apps.common.files.run_folder import refuse_to_replace
    from trellis.apps.common.progress import display_on
    from trellis.apps.common.runner import app_folder, make_run_config
    from trellis.sim.federation.folder import Federation
    from trellis.sim.federation.graph.folder import is_graph
    from trellis.sim.federation.rehearsal import commands
    from trellis.sim.flwr_command import CONNECTION
    from trellis.sim.processes import FlowerRunError
    from trellis.sim.run_config import check_run_config

    from .fitting import fit

    if is_graph(options.folder):
        from .graph_run import run_graph

        return run_graph(options, console)
    federation = Federation.load(options.folder)
    alone = server_alone(options, federation)
    given, seed, _, out = requested(options)
    devices = node_configs(federation)
    if alone is not None:
        given, devices = alone.settings(given), alone.devices(devices)
    fitted = fit(options.study, given, devices)
    if fitted.chosen and options.resume is None:
        say(console, f"chosen for these devices: {', '.join(fitted.chosen.values())}")
    config = make_run_config(
        options.study,
        fitted.settings,
        seed=seed,
        resume=options.resume is not None,
        force=options.force,
    )
    app = app_folder(options.study)
    command = commands(federation)
    if out is not None and options.resume is None:
        refuse_to_replace(out.resolve(), force=options.force)
    out = out.resolve() if out else new_folder(federation.folder, options.study)
    config |= {"out": str(out), "report": True, "devices": ",".join(federation.names)}
    if alone is not None:
        config |= alone.run_config()
    check_run_config(app, config)
    if alone is not None:
        alone.run.save(out)
    run_id = command.submit(app, config)
    say(console, f"run {run_id} of {options.study} was submitted; its folder: {out}")
    rounds = int(config[f"{options.study}.rounds"])
    try:
        with display_on(console) as display:
            show_line = log_reader(options.study, rounds, display, lambda text: say(console, text))
            ended = command.follow(run_id, timeout=math.inf, on_log=show_line)
    except KeyboardInterrupt:
        home = command.home
        say(console, f"run {run_id} goes on without this command. To follow it, or to stop it:")
        say(console, f"  FLWR_HOME={home} flwr log {run_id} {CONNECTION} --stream")
        say(console, f"  FLWR_HOME={home} flwr stop {run_id} {CONNECTION}")
        return 130
    except FlowerRunError as error:
        say(console, f"run {run_id} could not be followed to its end: {error}")
        say(console, f"what became of it: trellis deploy status {options.folder}")
        _say_resume(options, console, out)
        return 1
    return _report(options, console, out, ended)


def _report(options: argparse.Namespace, console: Console, out: Path, ended: Any) -> int:
    """Say how a run ended and where its result is."""
    from trellis.apps.command.closing import show
    from trellis.apps.common.results import RunResult, is_held
    from trellis.sim.flwr_command import tail

    try:
        result = RunResult.load(out)
    except (OSError, ValueError, KeyError):
        result = None  # on the SuperLink's machine, or ended before it wrote anything
    if ended.ok:
        if result is not None:
            show(console, [result])
        else:
            say(console, f"completed; the result is on the SuperLink's machine, in {out}")
        return 0
    why = f": {ended.details}" if ended.details else ""
    say(console, f"run {ended.run_id} ended as {ended.status}{why}")
    if ended.status == "finished:failed" and is_held(out):
        return 1  # what is in this folder is another run's, which goes on
    for note in result.notes if result is not None else tail(ended.log).splitlines():
        say(console, f"  {note}")
    if result is not None:
        _say_resume(options, console, out)
    return 1


def _say_resume(options: argparse.Namespace, console: Console, out: Path) -> None:
    go_on = f"trellis deploy run {options.folder} {options.study} --resume {out}"
    say(console, f"once that is mended, go on with: {go_on}")


def log_reader(
    label: str, rounds: int, display: Any, tell: Callable[[str], None]
) -> Callable[[str], None]:
    """Return what makes progress of the lines of a run's log, and tells its warnings."""
    from trellis.apps.common.progress import row_of

    def read(line: str) -> None:
        if row := row_of(line):
            display(label, rounds, row)
        elif line.lstrip().startswith(("WARNING", "ERROR")):
            tell(line.strip())

    return read


def node_configs(federation: Federation) -> dict[str, dict[str, Any]]:
    """Return the node config of every device, as far as its folder is still here."""
    from trellis.sim.federation.device import Device
    from trellis.sim.federation.folder import FederationError

    found: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(federation.names):
        try:
            found[name] = dict(Device.load(federation.device(name)).node)
        except FederationError:
            # Its owner has it: then only its place is known, as this federation was made.
            found[name] = {"partition-id": number, "num-partitions": len(federation.names)}
    return found


def new_folder(whole: Path, study: str) -> Path:
    """Make and return the first folder ``runs/STUDY-N`` in another that is not there yet."""
    for number in range(1, 100_000):
        folder = whole / "runs" / f"{study}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise ConfigError(f"{whole / 'runs'} is full; give --out")
