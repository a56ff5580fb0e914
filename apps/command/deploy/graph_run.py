"""``trellis deploy run`` on a graph of servers: a run at every SuperLink, all followed at once."""

from __future__ import annotations

import argparse
import math
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say
from trellis.apps.common.settings import ConfigError, Scalar

from .graph_settings import GraphRun, graph_settings, new_name, server_config

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.graph.folder import ServerGraph
    from trellis.sim.flwr_command import FlwrCommand

Config = dict[str, Scalar]


def run_graph(options: argparse.Namespace, console: Console) -> int:
    """Submit a study to every server and follow all; 0 only where all completed."""
    from trellis.apps.common.runner import app_folder
    from trellis.sim.federation.graph.folder import ServerGraph
    from trellis.sim.run_config import check_run_config

    graph = ServerGraph.load(options.folder)
    if options.only is not None and options.resume is None:
        raise ConfigError("--only needs --resume: a run begins at all servers, one may come back")
    if options.graph_run is not None:
        raise ConfigError("--graph-run is for one server's folder; here a name is made for all")
    names = graph.names if options.only is None else (graph.names[graph.number(options.only)],)
    run = GraphRun.of(options, new_name(options.study))
    config = _config(options, graph, console)
    app = app_folder(options.study)
    check_run_config(app, config | run.settings())
    commands = _commands(graph, names)
    folder = _folder(options, graph)
    run.save(folder)
    configs = {}
    for name in names:
        number = graph.number(name)
        federation = graph.federations[name]
        out = _place(folder, number)
        configs[name] = config | server_config(graph, number, graph.own(name), federation, run)
        # A server that had not begun begins now, though the others go on.
        resume = options.resume is not None and (out / "run.json").is_file()
        configs[name] |= {"out": str(out), "resume": resume, "force": options.force}
    runs = _submit(commands, app, configs)
    say(console, f"run {run.name} was submitted to {', '.join(names)}; its folder: {folder}")
    rounds = int(config[f"{options.study}.rounds"])
    ended = _follow(commands, runs, rounds, console)
    if ended is None:
        return 130
    return _report(options, console, graph, folder, ended)


def _config(options: argparse.Namespace, graph: ServerGraph, console: Console) -> Config:
    """Return the run config that all servers have in common."""
    from trellis.apps.command.run import requested
    from trellis.apps.common.runner import make_run_config

    from .fitting import fit
    from .submit import node_configs

    asked = argparse.Namespace(**vars(options))
    if options.resume is not None:
        asked.resume = _written(graph, options.resume)
    given, seed, _, _ = requested(asked)
    devices = {
        name: node
        for federation in graph.federations.values()
        for name, node in node_configs(federation).items()
    }
    fitted = fit(options.study, graph_settings(options.study, given, graph), devices, apart=True)
    if fitted.chosen and options.resume is None:
        say(console, f"chosen for these devices: {', '.join(fitted.chosen.values())}")
    return make_run_config(options.study, fitted.settings, seed=seed)


def _written(graph: ServerGraph, folder: Path) -> Path:
    """Return the folder of a server that has written what the run's settings are."""
    for number in range(len(graph.names)):
        if (_place(folder, number) / "run.json").is_file():
            return _place(folder, number)
    raise ConfigError(f"{folder}: no server has begun this run; start it anew, without --resume")


def _folder(options: argparse.Namespace, graph: ServerGraph) -> Path:
    from trellis.apps.common.files.run_folder import refuse_to_replace

    from .submit import new_folder

    given: Path | None = options.resume or options.out
    folder = given.resolve() if given else new_folder(graph.folder, options.study)
    if options.resume is None:
        for number in range(len(graph.names)):
            refuse_to_replace(_place(folder, number), force=options.force)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _place(folder: Path, number: int) -> Path:
    return folder / f"server-{number}"


def _commands(graph: ServerGraph, names: Iterable[str]) -> dict[str, FlwrCommand]:
    """Return the ``flwr`` command for every server; one that does not answer ends it here."""
    from trellis.sim.federation.folder import FederationError
    from trellis.sim.federation.rehearsal import commands

    found = {}
    for name in names:
        try:
            found[name] = commands(graph.federations[name])
        except FederationError as error:
            raise FederationError(f"{name}: {error}") from None
    return found


def _submit(
    commands: Mapping[str, FlwrCommand], app: Path, configs: Mapping[str, Config]
) -> dict[str, int]:
    """Submit all runs at once; where one is refused the others are stopped."""
    from trellis.sim.flwr_command import CONNECTION
    from trellis.sim.processes import FlowerRunError

    with ThreadPoolExecutor(len(configs)) as pool:
        waiting = {n: pool.submit(commands[n].submit, app, config) for n, config in configs.items()}
    failed = {name: error for name, future in waiting.items() if (error := future.exception())}
    runs = {name: future.result() for name, future in waiting.items() if name not in failed}
    if not failed:
        return runs
    for name, run_id in runs.items():
        commands[name].ask("stop", str(run_id), CONNECTION)
    name, error = next(iter(failed.items()))
    raise FlowerRunError(f"{name}: {error}; nothing runs, the others were stopped") from error


class _Stopped(RuntimeError):
    """Nobody follows any more."""


def _follow(
    commands: Mapping[str, FlwrCommand], runs: Mapping[str, int], rounds: int, console: Console
) -> dict[str, Any] | None:
    """Follow all runs, a thread each; return how each ended, nothing where Ctrl-C came first."""
    from trellis.apps.common.progress import Display, display_on
    from trellis.sim.flwr_command import CONNECTION
    from trellis.sim.processes import FlowerRunError

    from .submit import log_reader

    ended: dict[str, Any] = {}
    enough = threading.Event()

    def check() -> None:
        if enough.is_set():
            raise _Stopped

    def follow(name: str, display: Display) -> None:
        def tell(line: str) -> None:
            say(console, f"{name}: {line}")

        commands[name].check_alive = check
        read = log_reader(name, rounds, display, tell)
        try:
            ended[name] = commands[name].follow(runs[name], timeout=math.inf, on_log=read)
        except (FlowerRunError, _Stopped) as error:
            ended[name] = error

    try:
        with display_on(console) as display:
            threads = [
                threading.Thread(target=follow, args=(name, display), daemon=True) for name in runs
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)  # not for ever: Ctrl-C must come through
    except KeyboardInterrupt:
        enough.set()
        for thread in threads:
            thread.join(5.0)
        say(console, "the runs go on without this command. To follow one, or to stop it:")
        for name, run_id in runs.items():
            home = commands[name].home
            say(console, f"  {name}: FLWR_HOME={home} flwr log {run_id} {CONNECTION} --stream")
            say(console, f"  {name}: FLWR_HOME={home} flwr stop {run_id} {CONNECTION}")
        return None
    return ended


def _report(
    options: argparse.Namespace,
    console: Console,
    graph: ServerGraph,
    folder: Path,
    ended: Mapping[str, Any],
) -> int:
    """Say how each server's run ended, and what can be done now."""
    lost = []
    for number, name in enumerate(graph.names):
        if name in ended and not _say_end(console, name, _place(folder, number), ended[name]):
            lost.append(name)
    for name in lost:
        only = f" --only {name}" if len(lost) < len(graph.names) else ""
        go_on = f"trellis deploy run {options.folder} {options.study} --resume {folder}{only}"
        say(console, f"once that is mended, go on with: {go_on}")
        if not only:
            break
    if len(lost) < len(ended):
        say(console, "one result of all servers:")
        say(console, f"  trellis merge {folder}/server-* --out {folder}/merged")
    return 1 if lost else 0


def _say_end(console: Console, name: str, out: Path, end: Any) -> bool:
    """Say how one server's run ended; return whether it completed."""
    from trellis.apps.common.results import RunResult
    from trellis.sim.flwr_command import FlowerRun, tail

    if not isinstance(end, FlowerRun):
        say(console, f"{name}: could not be followed to its end: {end}")
        return False
    try:
        result = RunResult.load(out)
    except (OSError, ValueError, KeyError):
        result = None  # on another machine, or ended before it wrote anything
    rounds = f" after {len(result.metrics)} rounds" if result is not None else ""
    notes = result.notes if result is not None else []
    if not notes and not end.ok:
        notes = [end.details] if end.details else tail(end.log).splitlines()
    say(console, f"{name}: {end.status.removeprefix('finished:')}{rounds}")
    for note in notes:
        say(console, f"  {name}: {note}")
    return end.ok
