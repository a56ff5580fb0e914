"""A device whose SuperLink is gone goes to the one its owner has named, and home again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from trellis.privacy.device import log
from trellis.sim.federation.certificates import make_authority, make_server
from trellis.sim.federation.folder import Federation
from trellis.sim.flwr_command import CONNECTION, FlwrCommand, connection_toml
from trellis.sim.processes import descendants, flower_environment, free_port, stop_all
from trellis.sim.reach import reach

from .site import Submitted, processes_of, trellis, until, write_table

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]
AFTER = 4  # seconds without an answer


class Process:
    """A program that is ours to stop, with all that it starts."""

    def __init__(self, command: list[str], output: Path, **environment: str) -> None:
        self.output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env=os.environ | environment
            )

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def all(self, known: frozenset[int] | set[int] = frozenset()) -> set[int]:
        ended = self._process.poll() is not None
        return descendants(set(known) | (set() if ended else {self._process.pid}))

    def node(self) -> list[int]:
        """Return the SuperNodes among them."""
        return [pid for pid in self.all() if "trellis.sim.supernode" in _command(pid)]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(timeout=120)

    def end(self) -> None:
        assert stop_all(self.all) == set()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


class Server:
    """One SuperLink of several under one certificate authority, at a port and a database."""

    def __init__(self, place: Path, certificate: bytes, pair: Any) -> None:
        place.mkdir()
        self._place, self.address = place, f"127.0.0.1:{free_port()}"
        self.certificate = place / "ca.crt"
        self.certificate.write_bytes(certificate)
        (place / "server.crt").write_bytes(pair.public)
        (place / "server.key").write_bytes(pair.private)
        (place / "home").mkdir()
        config = connection_toml(self.address, self.certificate)
        (place / "home" / "config.toml").write_text(config)
        self.command = FlwrCommand(lambda: flower_environment(place / "home"))
        self.process: Process | None = None

    def start(self) -> None:
        place, (host, port) = self._place, self.address.split(":")
        program = Path(sys.executable).parent / "flower-superlink"
        command = [str(program), "--host", host, "--port", port, "--enable-supernode-auth"]
        command += ["--database", str(place / "superlink.db")]
        for option, file in (("ca-cert", "ca.crt"), ("cert", "server.crt"), ("key", "server.key")):
            command += [f"--ssl-{option}file", str(place / file)]
        environment = flower_environment(place / "home")
        self.process = Process(command, place / "log", **environment)
        until(lambda: reach(self.address, self.certificate, 1.0).ok, lambda: self.process.text)

    def kill(self) -> None:
        """End it as a power cut does, with all that it has started."""
        for pid in self.process.all():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def status(self, name: str) -> str:
        """Return what it says of a device."""
        rows = self.command.ask("supernode", "list")["nodes"]
        return next((row["status"] for row in rows if row["node-id"] == self.numbers[name]), "")

    def register(self, name: str, key: Path) -> None:
        answer = self.command.ask("supernode", "register", str(key), CONNECTION, "--name", name)
        self.numbers = {name: str(answer["node-id"])}


class Scene:
    """Two SuperLinks and the ward's device, which belongs to the first."""

    def __init__(self, place: Path, first: Server, second: Server) -> None:
        self.place, self.first, self.second = place, first, second
        self.device = place / "federation" / "devices" / "ward"
        self.process: Process | None = None

    def start(self, *, again: str = "3") -> None:
        self.process = Process(
            ["/bin/sh", str(self.device / "start.sh")],
            self.place / "device.log",
            TRELLIS_BIN=str(Path(sys.executable).parent),
            TRELLIS_AGAIN=again,
        )

    def online(self, server: Server) -> None:
        until(lambda: server.status("ward") == "online", lambda: self.process.text[-4000:])

    def submit(self, server: Server, out: str, **settings: object) -> Submitted:
        """Submit a run at one of the servers, as its operator."""
        operator = self.place / f"operator-of-{out}"
        operator.mkdir()
        folder = self.place / "federation"
        shutil.copytree(folder / "operator", operator / "operator")
        toml = (folder / "federation.toml").read_text()
        ports = [known.address.split(":")[1] for known in (self.first, server)]
        (operator / "federation.toml").write_text(toml.replace(*ports))
        assert Federation.load(operator).address == server.address
        given = ["--out", str(self.place / out)]
        for key, value in settings.items():
            given += ["--set", f"{key.replace('_', '-')}={value}"]
        arguments = [str(operator), "consensus-graph", *given]
        return Submitted(arguments, self.place / f"{out}.log", self.place / out)

    def entries(self) -> list[dict[str, Any]]:
        """Return what the device's ledger counts."""
        path = self.device / "state" / "ledger.json"
        return list(json.loads(path.read_text())["entries"].values()) if path.exists() else []

    def moves(self) -> list[str]:
        """Return where the device's own log says that it went."""
        return [x["address"] for x in log.read(self.device / "state") if x["what"] == "moved"]


@contextmanager
def scene(place: Path) -> Iterator[Scene]:
    """Make the certificates, the two servers and the device; leave nothing running."""
    authority = make_authority()
    data = place / "data"
    data.mkdir()
    write_table(data / "ward.csv", 0)
    folder = place / "federation"
    servers = [
        Server(place / name, authority.pair.public, make_server(authority, ["127.0.0.1"]))
        for name in ("first", "second")
    ]
    found = Scene(place, *servers)
    first, second = servers
    port = first.address.split(":")[1]
    trellis("deploy", "init", folder, "--tls", "--open", "--data", data, "--port", port)
    for holder in (found.device, folder / "operator"):
        shutil.copy(first.certificate, holder / "ca.crt")
    toml = (found.device / "device.toml").read_text()
    assert f'superlink = "{first.address}"' in toml
    toml = toml.replace("other.example.org:8443", second.address)
    toml = toml.replace("# fallback = ", "fallback = ")
    toml = toml.replace("# fallback-after = 30", f"fallback-after = {AFTER}")
    (found.device / "device.toml").write_text(toml)
    with ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(lambda server=server: server.process.end())
            server.register("ward", folder / "operator" / "keys" / "ward.pub")
        stack.callback(lambda: found.process and found.process.end())
        yield found
    # A SuperExec whose SuperNode was killed notices that by itself, in a few seconds.
    until(lambda: not processes_of(place), lambda: str(processes_of(place)))


def test_a_device_goes_to_its_fallback_and_home_again_twice_in_a_row(tmp_path):
    with scene(tmp_path) as here:
        first, second = here.first, here.second
        words = trellis("deploy", "check", here.device)
        assert f"ok fallback 1: {second.address} answers, over TLS" in words
        here.start()
        here.online(first)
        assert second.status("ward") == "registered"
        home = f"--superlink {first.address}"
        for times in (1, 2):
            before = here.process.node()
            assert len(before) == 1
            first.kill()
            began = time.monotonic()
            here.online(second)
            away = time.monotonic() - began
            print(f"online at the fallback after {away:.1f} s")
            assert away >= AFTER - 2.0  # from the last answer, which came before the kill
            (node,) = here.process.node()
            assert before != [node]
            assert f"--superlink {second.address}" in _command(node)
            # On the same port and database. It may still take the device for online: then the
            # SuperNode is refused and started again, as after every other crash.
            first.start()
            began = time.monotonic()
            until(lambda: second.status("ward") == "offline", lambda: here.process.text[-4000:])
            until(
                lambda: any(home in _command(pid) for pid in here.process.node()),
                lambda: here.process.text[-4000:],
            )
            here.online(first)
            print(f"online at home after {time.monotonic() - began:.1f} s")
            assert here.moves() == [second.address, first.address] * times
            assert len(here.process.node()) == 1
        words = trellis("device", "log", here.device / "state")
        assert f"moved {second.address} {first.address} has not answered for" in words
        assert f"moved {first.address} {first.address} answers again" in words
        config = (here.device / "flower" / "node-config.toml").read_text()
        assert "server-name" not in config  # that is for a device that is away

        # One signal to what its owner has started ends it all, and both servers know.
        everything = here.process.all()
        assert len(everything) >= 4  # shell, supervisor, SuperNode, SuperExec
        here.process.signal(signal.SIGTERM)
        assert here.process.wait() == 0
        until(lambda: descendants(everything) == set(), lambda: str(descendants(everything)))
        assert (first.status("ward"), second.status("ward")) == ("offline", "offline")
        assert processes_of(here.device) == []


def test_a_killed_supervisor_leaves_no_second_supernode(tmp_path):
    with scene(tmp_path) as here:
        here.start()
        here.online(here.first)
        (node,) = here.process.node()
        (supervisor,) = [
            pid
            for pid in here.process.all()
            if " device start " in _command(pid) and "/bin/sh" not in _command(pid)
        ]
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: descendants({node}) == set(), lambda: "the SuperNode goes on alone")
        until(lambda: len(here.process.node()) == 1, lambda: here.process.text[-4000:])
        here.online(here.first)
        (other,) = here.process.node()
        assert other != node
        assert "the device ended with code 137; it is started again" in here.process.text


def test_a_fallback_that_does_not_know_the_device_is_told_and_home_is_not_forgotten(tmp_path):
    with scene(tmp_path) as here:
        here.second.command.ask("supernode", "unregister", here.second.numbers["ward"], CONNECTION)
        here.start()
        here.online(here.first)
        here.first.kill()

        def ended() -> list[dict[str, Any]]:
            return [x for x in log.read(here.device / "state") if x["what"] == "ended"]

        until(ended, lambda: here.process.text[-4000:])
        assert ended()[0]["address"] == here.second.address
        assert "is this device registered there?" in ended()[0]["reason"]
        here.first.start()
        until(lambda: here.moves()[-1] == here.first.address, lambda: json.dumps(here.moves()))
        here.online(here.first)
