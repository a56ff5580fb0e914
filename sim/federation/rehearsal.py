"""A federation's processes on this machine: start, look, stop.

They outlive the command that started them. Each carries the federation's folder in its environment
(`sim.processes.MARK`), and a record tells process id and start time: stopping finds exactly them,
by process id, also where the command that started them was killed, and never a stranger that came
to have the same id.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.sim.flwr_command import FlwrCommand, connection_toml, plain, tail
from trellis.sim.processes import (
    HAS_PROC,
    MARK,
    descendants,
    flower_environment,
    is_marked,
    marked,
    started_at,
    stop_all,
    uninterrupted,
)
from trellis.sim.reach import reach

from .folder import Federation, FederationError
from .registering import read_record, register, write_record

logger = logging.getLogger("trellis.flower")

SERVER = "server"
_AGAIN = "5"  # seconds until a device that ended is started again
_NODE_ID = re.compile(r"SuperNode ID: (\d+)")
PART = "TRELLIS_FEDERATION_PART"  # in a process's environment: which of these it is of
DEVICE, BRIDGE = "device", "bridge"
EVERYTHING = frozenset({SERVER, DEVICE, BRIDGE})


@dataclass(frozen=True)
class DeviceStatus:
    """What is known of one device.

    Attributes
    ----------
    name : of the device
    node : Flower's number; empty where it has none yet
    status : ``online``, ``offline``, ``registered`` (never seen) or ``unknown``
    since : when that began, as the SuperLink tells it
    process : its process here; 0 where none runs
    """

    name: str
    node: str
    status: str
    since: str
    process: int


class Rehearsal:
    """The processes of a federation on this machine.

    Parameters
    ----------
    federation : its folder has a place ``rehearsal/`` for the record and the logs
    guest_logs : where guests of this SuperLink that run here write, by name
    """

    def __init__(
        self, federation: Federation, guest_logs: Mapping[str, Path] | None = None
    ) -> None:
        self.federation = federation
        self._guest_logs = dict(guest_logs or {})
        self.folder = federation.folder / "rehearsal"
        self.command = FlwrCommand(self._environment)

    # --- what runs ---------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the SuperLink of this folder runs here."""
        return SERVER in self.processes()

    def processes(self) -> dict[str, int]:
        """Return the living processes of the record, by name."""
        mark = f"{MARK}={self.federation.folder}"
        return {
            name: int(pid)
            for name, (pid, began) in self._record().items()
            if began == started_at(int(pid)) and (not HAS_PROC or is_marked(int(pid), mark))
        }

    def log(self, name: str) -> str:
        """Return what the process called ``name`` has written since it was last started."""
        path = self._guest_logs.get(name, self.log_file(name))
        try:
            return plain(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return ""

    def has_connected(self, name: str) -> bool:
        """Return whether a node has connected since it was last started.

        Of one that was killed before, the SuperLink says for a while that it is online.
        """
        return _NODE_ID.search(self.log(name)) is not None

    def log_file(self, name: str) -> Path:
        """Return where the process called ``name`` writes."""
        return self.folder / f"{name}.log"

    def status(self) -> list[DeviceStatus]:
        """Return what the SuperLink says of every device and guest, by name."""
        nodes = {row["node-id"]: row for row in self.command.ask("supernode", "list")["nodes"]}
        numbers, processes = self.node_numbers(), self.processes()
        found = []
        for name in self.federation.nodes:
            row = nodes.get(numbers.get(name, ""), {})
            status = str(row.get("status", "unknown"))
            since = row.get("online-at" if status == "online" else "offline-at", "")
            since = "" if since == "N/A" else since
            number = numbers.get(name, "") if row else ""
            found.append(DeviceStatus(name, number, status, since, processes.get(name, 0)))
        return found

    def node_numbers(self) -> dict[str, str]:
        """Return Flower's number of every device: as registered, or as its log here says."""
        if self.federation.tls:
            return read_record(self._numbers_file())
        found = {name: _NODE_ID.findall(self.log(name)) for name in self.federation.nodes}
        return {name: numbers[-1] for name, numbers in found.items() if numbers}

    # --- starting ----------------------------------------------------------------------------

    def up(self, *, timeout: float = 180.0, say: Callable[[str], None] = logger.info) -> None:
        """Start what does not run yet, register the devices, wait until all are online.

        Raises
        ------
        FederationError
            Where something does not start; what runs then goes on, for a look at its log.
        """
        deadline = time.monotonic() + timeout
        self.check_port()
        self.start_superlink()
        self.register(deadline, say)
        self.start_devices()
        self._wait_for_devices(deadline, timeout, say)

    def check_port(self) -> None:
        """Refuse to start where somebody else has the SuperLink's port."""
        if not self.running and reach(self.federation.here, None, 1.0).there:
            raise FederationError(
                f"port {self.federation.port} is taken by another process; stop that, or make the "
                "federation with another --port"
            )

    def start_superlink(self) -> None:
        """Start the SuperLink where it does not run."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        federation = self.federation
        config = connection_toml(federation.here, federation.certificate)
        (self.folder / "config.toml").write_text(config, encoding="utf-8")
        if not self.running:
            self._start(SERVER, federation.folder / SERVER / "start.sh")

    def register(self, deadline: float, say: Callable[[str], None]) -> None:
        """Wait until the SuperLink answers, and tell it the keys of all."""
        self._wait_for_superlink(deadline)
        say(f"SuperLink: {self.federation.here}")
        if self.federation.tls:
            register(self.federation, self.command, self._numbers_file(), say)

    def start_devices(self) -> None:
        """Start the devices that do not run."""
        for name in self.federation.names:
            self.start_node(name, self.federation.device(name), self.federation.here)

    def start_node(self, name: str, folder: Path, superlink: str) -> None:
        """Start the SuperNode of a folder as the process ``name``, where that does not run."""
        if name not in self.processes():
            self._start(name, folder / "start.sh", "--superlink", superlink)

    def _start(self, name: str, script: Path, *arguments: str) -> None:
        environment = self._environment() | {
            "TRELLIS_BIND": "127.0.0.1",  # a rehearsal is for this machine only
            "TRELLIS_AGAIN": _AGAIN,
            "TRELLIS_DATABASE": str(self.folder / "superlink.db"),
            PART: self._part(name),
        }
        del environment["FLWR_HOME"]  # each has its own, in its folder
        with self.log_file(name).open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", str(script), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        record = self._record() | {name: [str(process.pid), started_at(process.pid)]}
        write_record(self.folder / "processes.json", record)

    def _wait_for_superlink(self, deadline: float) -> None:
        federation = self.federation
        while not (found := reach(federation.here, federation.certificate, 1.0)).ok:
            if not self.running or time.monotonic() > deadline:
                end = tail(self.log(SERVER))
                raise FederationError(f"the SuperLink does not answer: {found.words}\n{end}")
            time.sleep(0.2)

    def _wait_for_devices(
        self, deadline: float, timeout: float, say: Callable[[str], None]
    ) -> None:
        told: set[str] = set()
        while True:
            status = self.status()
            online = {device.name for device in status if device.status == "online"}
            online &= set(self.federation.names)
            for name in sorted(online - told):
                say(f"online: {name}")
            told |= online
            missing = [name for name in self.federation.names if name not in online]
            if not missing:
                return
            running = self.processes()
            gone = [name for name in missing if name not in running]
            if gone or time.monotonic() > deadline:
                why = "ended" if gone else f"not online after {timeout:g} s"
                first = gone[0] if gone else missing[0]
                raise FederationError(
                    f"{', '.join(gone or missing)}: {why}; the log of {first} ends with\n"
                    f"{tail(self.log(first), 12)}"
                )
            time.sleep(0.5)

    # --- stopping ----------------------------------------------------------------------------

    def down(self) -> int:
        """Stop every process of this folder; return how many there were.

        Raises
        ------
        FederationError
            Where some could not be stopped.
        """
        return stop([self])

    def living(self, known: set[int], parts: Set[str] = EVERYTHING) -> set[int]:
        """Return the living processes of some parts, and those of ``known`` that live."""
        _reap(known)
        # What runs an app hides its environment, also from its owner; its parents do not.
        found = self._marked(parts) if HAS_PROC else set(self.started(parts).values())
        return descendants(found | known)

    def started(self, parts: Set[str]) -> dict[str, int]:
        """Return `processes` of some parts."""
        return {name: pid for name, pid in self.processes().items() if self._part(name) in parts}

    def forget(self) -> None:
        """Take note of what does not run any more."""
        left = {name: self._record()[name] for name in self.processes()}
        if left:
            write_record(self.folder / "processes.json", left)
        else:
            (self.folder / "processes.json").unlink(missing_ok=True)

    def _part(self, name: str) -> str:
        if name == SERVER:
            return SERVER
        return DEVICE if name in self.federation.names else BRIDGE

    def _marked(self, parts: Set[str]) -> set[int]:
        found = marked(f"{MARK}={self.federation.folder}") - {os.getpid()}
        if parts == EVERYTHING:
            return found
        return found & set().union(*(marked(f"{PART}={part}") for part in parts))

    def _environment(self) -> dict[str, str]:
        return flower_environment(self.folder) | {MARK: str(self.federation.folder)}

    def _numbers_file(self) -> Path:
        # A rehearsal has a database of its own, and so numbers of its own.
        place = self.folder if self.running else self.federation.folder / "operator"
        return place / "nodes.json"

    def _record(self) -> dict[str, Any]:
        return read_record(self.folder / "processes.json")


def stop(
    rehearsals: Sequence[Rehearsal], parts: Set[str] = EVERYTHING, *, kill: bool = False
) -> int:
    """Stop every process of some parts of these; return how many there were.

    ``kill`` is for who wants to see a power cut: nobody can say goodbye.

    Raises
    ------
    FederationError
        Where some could not be stopped.
    """
    before: set[int] = set()

    def living(known: set[int]) -> set[int]:
        found = {pid for rehearsal in rehearsals for pid in rehearsal.living(known, parts)}
        before.update(found)
        return found

    def nodes(known: set[int]) -> set[int]:
        return {pid for rehearsal in rehearsals for pid in rehearsal.living(known, no_server)}

    def starters(known: set[int]) -> set[int]:
        return {pid for rehearsal in rehearsals for pid in rehearsal.started(no_server).values()}

    no_server = parts - {SERVER}

    living(set())
    with uninterrupted():
        # Nodes first: each then tells its SuperLink that it leaves, and may come back at once.
        # Otherwise it would be taken for online for a while. By its start.sh, which waits for it:
        # a second signal would end a SuperNode before it has said so.
        if not kill:
            stop_all(starters, 10.0)
            stop_all(nodes)
        left = stop_all(living, kill=kill)
    if left:
        raise FederationError(f"could not be stopped: processes {sorted(left)}")
    for rehearsal in rehearsals:
        rehearsal.forget()
    return len(before)


def register_for_real(federation: Federation, say: Callable[[str], None]) -> None:
    """Tell the federation's SuperLink, wherever it runs, the devices' keys."""
    if not federation.tls:
        raise FederationError("without TLS devices have no keys; make the federation with --tls")
    rehearsal = Rehearsal(federation)
    register(federation, commands(federation), rehearsal._numbers_file(), say)


def commands(federation: Federation) -> FlwrCommand:
    """Return the ``flwr`` command for a federation: of its rehearsal where that runs."""
    rehearsal = Rehearsal(federation)
    if rehearsal.running:
        return rehearsal.command
    home = federation.folder / "operator"
    # Anew: the folder may have been moved, and Flower wants the certificate's absolute path.
    config = connection_toml(federation.address, federation.certificate)
    (home / "config.toml").write_text(config, encoding="utf-8")
    found = reach(federation.address, federation.certificate)
    if not found.ok:
        raise FederationError(
            f"{found.words}; for a rehearsal on this machine: trellis deploy up {federation.folder}"
        )
    return FlwrCommand(lambda: flower_environment(home))


def _reap(pids: set[int]) -> None:
    """Take note of the end of those that are children of ours: a zombie still counts as alive."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue
