"""``trellis deploy``: a federation as a folder: make it, rehearse it here, run studies on it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.given import StudyNames, add_settings
from trellis.apps.command.saying import say
from trellis.apps.common.settings import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.folder import Federation

    from .graph import GraphCommands

_PORT, _TLS_PORT = 8000, 8443


def add(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("deploy", help="a federation: make it, rehearse it, run on it")
    parts = parser.add_subparsers(required=True, metavar="init|up|run|status|down|register|check")
    _add_init(parts)
    for name, act, about in (
        ("up", act_up, "start it on this machine and wait until all devices are online"),
        ("status", act_status, "who is online, and how runs have ended"),
        ("down", act_down, "stop what was started on this machine"),
        ("register", act_register, "tell the real SuperLink the devices' keys, by their names"),
    ):
        part = parts.add_parser(name, help=about)
        part.add_argument("folder", type=Path, metavar="DIR", help="the federation's folder")
        if name in ("up", "down"):
            part.add_argument("--only", metavar="SERVER", help="one server of a graph of them")
        if name == "down":
            part.add_argument(
                "--kill", action="store_true", help="of a graph: at once, as by a power cut"
            )
        part.set_defaults(act=act)
    _add_run(parts)
    check = parts.add_parser("check", help="look at a device before it joins, in words")
    check.add_argument("folder", type=Path, metavar="DEVICE", help="the device's folder")
    check.set_defaults(act=act_check)


def _add_init(parts: Any) -> None:
    part = parts.add_parser("init", help="make a folder with everything each machine needs")
    part.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    part.add_argument("--clients", type=int, metavar="N", help="how many devices (of each server)")
    part.add_argument("--servers", type=int, metavar="P", help="a graph of servers: how many")
    part.add_argument(
        "--topology", metavar="GRAPH", help="of the servers: ring, path, star, complete, or a file"
    )
    part.add_argument("--names", metavar="A,B,C", help="their names; of the files by default")
    part.add_argument("--data", type=Path, metavar="DIR", help="one file per device, copied")
    part.add_argument("--tls", action="store_true", help="certificates, authenticated devices")
    part.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="name or address of the SuperLink's machine; may be repeated, the first is used; with "
        "--servers once for all or once for each, more names of one between commas",
    )
    part.add_argument(
        "--port",
        type=int,
        help=f"of the SuperLink; {_PORT}, with TLS {_TLS_PORT}; those of a graph count up from it",
    )
    part.add_argument(
        "--open", action="store_true", help="let devices take part in runs without privacy"
    )
    part.add_argument(
        "--rehome",
        action="store_true",
        help="of a graph: devices go to a neighbour of their server while that is gone",
    )
    part.set_defaults(act=act_init)


def act_run(options: argparse.Namespace, console: Console) -> int:
    """Run a study on the devices of a federation."""
    from .submit import act_run as submit

    return submit(options, console)


def _add_run(parts: Any) -> None:
    part = parts.add_parser("run", help="run a study on the devices, to its true end")
    part.add_argument("folder", type=Path, metavar="DIR", help="the federation's folder")
    part.add_argument("study", choices=StudyNames(), metavar="STUDY")
    part.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file")
    part.add_argument("--seed", type=int, help="of what the server draws; 1 by default")
    part.add_argument("--out", type=Path, metavar="DIR", help="DIR/runs/STUDY-N by default")
    part.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    part.add_argument("--force", action="store_true", help="delete the run that --out holds")
    graph = part.add_argument_group("on a graph of servers")
    graph.add_argument("--only", metavar="SERVER", help="resume one server, which comes back")
    graph.add_argument(
        "--max-staleness",
        type=int,
        metavar="N",
        help="how many rounds old a neighbour's model may be; 0, the default, keeps rounds in step",
    )
    graph.add_argument(
        "--server-timeout",
        type=float,
        metavar="SECONDS",
        help="wait so long for a neighbour's model before it counts as gone; 60 by default",
    )
    graph.add_argument(
        "--graph-run",
        metavar="NAME",
        help="of one server's folder: the run's name, the same at all servers, new for every run",
    )
    add_settings(part)
    part.set_defaults(act=act_run, data=None)


def act_init(options: argparse.Namespace, console: Console) -> int:
    """Make a federation's folder."""
    from trellis.sim.federation.create import create
    from trellis.sim.federation.folder import Federation

    if options.host and not options.tls:
        raise ConfigError("--host needs --tls: without TLS a federation is for one machine only")
    port = options.port or (_TLS_PORT if options.tls else _PORT)
    if options.servers is not None or options.topology is not None:
        from .graph_init import init

        return init(options, port, console)
    if options.rehome:
        raise ConfigError("--rehome is for a graph of servers: give --servers too")
    names, data = named_devices(options, options.clients)
    federation = Federation(
        options.folder.resolve(),
        tuple(names),
        options.host[0] if options.host else "127.0.0.1",
        port,
        options.tls,
    )
    create(federation, hosts=options.host, data=data, open_policy=options.open)
    say(console, f"{len(names)} devices in {federation.folder}: {', '.join(names)}")
    if not data:
        say(console, f"put each device's file at {federation.folder}/devices/NAME/data/NAME.csv")
    if options.open:
        say(console, "their policies allow runs without any privacy: for trying out only")
    say(console, f"what to do now: {federation.folder}/README.md, or here, as a rehearsal:")
    say(console, f"  trellis deploy up {options.folder}")
    return 0


def act_up(options: argparse.Namespace, console: Console) -> int:
    """Start a federation on this machine."""
    from trellis.sim.federation.rehearsal import Rehearsal

    if graph := _graph(options):
        return graph.up(options.only, console)
    federation = _load(options.folder)
    if problems := not_ready(federation):
        raise ConfigError("\n".join(problems))
    Rehearsal(federation).up(say=lambda text: say(console, text))
    say(console, f"all {len(federation.names)} devices are online; they stay so until")
    say(console, f"  trellis deploy down {options.folder}")
    return 0


def act_status(options: argparse.Namespace, console: Console) -> int:
    """Say who is online and how runs have ended; 1 where a device is not online."""
    from rich.table import Table

    from trellis.sim.federation.rehearsal import Rehearsal, commands
    from trellis.sim.flwr_command import CONNECTION

    if graph := _graph(options):
        return graph.status(console)
    federation = _load(options.folder)
    rehearsal = Rehearsal(federation)
    if not rehearsal.running:
        rehearsal.command = commands(federation)
    where = rehearsal.processes().get("server")
    process = f"process {where} here" if where else "on another machine"
    address = federation.here if where else federation.address
    say(console, f"SuperLink {address}: answers, {process}")
    devices = rehearsal.status()
    table = Table()
    for heading in ("device", "status", "since", "process", "Flower's number"):
        table.add_column(heading, no_wrap=True)
    for device in devices:
        here = str(device.process) if device.process else "-"
        table.add_row(device.name, device.status, device.since or "-", here, device.node or "-")
    console.print(table)
    runs = rehearsal.command.ask("ls", CONNECTION)["runs"]
    if runs:
        table = Table("run", "status", "seconds", "why")
        for run in runs:
            why = "" if run["status-details"] == "N/A" else str(run["status-details"])
            table.add_row(str(run["run-id"]), run["status"], str(run.get("elapsed", "")), why)
        console.print(table)
    return 0 if all(device.status == "online" for device in devices) else 1


def act_down(options: argparse.Namespace, console: Console) -> int:
    """Stop what was started on this machine."""
    from trellis.sim.federation.rehearsal import Rehearsal

    if graph := _graph(options):
        return graph.down(options.only, options.kill, console)
    if options.kill:
        raise ConfigError(f"--kill is for a graph of servers, and {options.folder} is none")
    stopped = Rehearsal(_load(options.folder)).down()
    say(console, f"{stopped} processes stopped" if stopped else "nothing was running here")
    return 0


def act_register(options: argparse.Namespace, console: Console) -> int:
    """Register the devices at their SuperLink."""
    from trellis.sim.federation.rehearsal import register_for_real

    if graph := _graph(options):
        return graph.register(console)
    federation = _load(options.folder)
    register_for_real(federation, lambda text: say(console, text))
    say(console, f"all {len(federation.names)} devices are registered at {federation.address}")
    return 0


def act_check(options: argparse.Namespace, console: Console) -> int:
    """Look at a device before it joins; 1 where something is not well."""
    from trellis.sim.federation.device import Device

    from .check import findings

    device, bad = Device.load(options.folder), 0
    say(console, f"{device.name}, for {device.superlink}")
    for finding in findings(device):
        bad += not finding.ok
        mark = "  NOT " if not finding.ok else " warn " if finding.warning else "  ok  "
        say(console, f"{mark}{finding.what}: {finding.words}")
    say(console, f"{bad} to mend" if bad else "this device can join")
    return 1 if bad else 0


def named_devices(
    options: argparse.Namespace, clients: int | None
) -> tuple[list[str], dict[str, Path]]:
    """Return the devices' names, and their files where a folder of them is given.

    ``clients`` is how many there are over all servers, where that is asked for.
    """
    from trellis.apps.common.tables import client_sources

    files = [] if options.data is None else client_sources(options.data)
    count = clients or len(files)
    names = options.names.split(",") if options.names else [file.stem for file in files[:count]]
    count = count or len(names)
    if not count:
        raise ConfigError("how many devices? give --clients N, --names or --data")
    names = names or [f"client-{number + 1}" for number in range(count)]
    asked = f"--clients {count}"
    if clients != options.clients:
        asked = f"--clients {options.clients} of each server makes {count}"
    if len(names) != count:
        raise ConfigError(f"{asked}, but {len(names)} names: {', '.join(names)}")
    if files and len(files) < count:
        raise ConfigError(f"{asked}, but {options.data} holds {len(files)} files")
    return names, dict(zip(names, files, strict=False))


def not_ready(federation: Federation) -> list[str]:
    """Return why devices of a folder would not start here."""
    from trellis.sim.federation.device import Device

    from .check import before_start

    problems = []
    for name in federation.names:
        device = Device.load(federation.device(name))
        problems += [f"{name}: {f.what}: {f.words}" for f in before_start(device) if not f.ok]
    return problems


def _graph(options: argparse.Namespace) -> GraphCommands | None:
    """Return what to do with a graph of servers, where the folder is one."""
    from trellis.sim.federation.graph.folder import ServerGraph, is_graph

    from .graph import GraphCommands

    if is_graph(options.folder):
        return GraphCommands(ServerGraph.load(options.folder), options.folder)
    if getattr(options, "only", None) is not None:
        raise ConfigError(f"--only is for a graph of servers, and {options.folder} is none")
    return None


def _load(folder: Path) -> Federation:
    from trellis.sim.federation.folder import Federation

    return Federation.load(folder)
