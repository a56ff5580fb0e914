"""``trellis deploy init`` and ``check``, ``trellis device start``: without any process."""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.command.deploy.check import findings
from trellis.privacy.device.codes import CODES
from trellis.sim.federation.device import Device
from trellis.sim.federation.folder import Federation
from trellis.sim.processes import free_port


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("b", "a", "c"):
        header = "x1,x2,x3"
        rows = rng.normal(size=(20, 3))
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=header, comments="")
    return folder


@pytest.fixture
def device(tmp_path, data):
    folder = tmp_path / "federation"
    arguments = ["--data", str(data), "--tls", "--port", str(free_port())]
    assert main(["deploy", "init", str(folder), *arguments]) == 0
    return folder / "devices" / "a"


def says(capsys, *arguments, code=0):
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == code
    return " ".join(capsys.readouterr().out.split())


def change(device, before, after):
    path = device / "device.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def bad(device):
    """Return what is not well but the server, which is not there."""
    found = {f.what: f.words for f in findings(Device.load(device)) if not f.ok}
    assert "nobody answers" in found.pop("server")
    return found


def test_devices_are_named_by_their_files_in_order(device):
    federation = Federation.load(device.parents[1])
    assert federation.names == ("a", "b", "c")
    nodes = [Device.load(federation.device(name)).node for name in federation.names]
    assert [node["partition-id"] for node in nodes] == [0, 1, 2]
    assert [os.path.isfile(node["data-path"]) for node in nodes] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "how many devices?"),
        (["--clients", "2", "--names", "a"], "--clients 2, but 1 names: a"),
        (["--clients", "9", "--data", "DATA"], "but 3 names"),
        (["--clients", "2", "--host", "example.org"], "--host needs --tls"),
        (["--names", "a,a"], "'a' is the name of two devices"),
    ],
)
def test_what_init_cannot_make_is_told(tmp_path, data, capsys, arguments, message):
    given = [str(data) if a == "DATA" else a for a in arguments]
    assert message in says(capsys, "deploy", "init", tmp_path / "new", *given, code=1)
    assert not (tmp_path / "new" / "federation.toml").exists()


def test_a_device_that_is_well_misses_the_server_only(device, capsys):
    assert bad(device) == {}
    words = says(capsys, "deploy", "check", device, code=1)
    assert "NOT server: nobody answers" in words
    assert "ok policy: Budget: at most epsilon 10 over all runs, at most 1 by one run" in words
    assert "20 records of 3 columns" in words
    assert "3 devices are known, this one as 'a'" in words
    assert "1 to mend" in words


def test_a_file_that_cannot_be_used_is_named(device):
    path = device / "data" / "a.csv"
    path.write_text("x1,x2,x3\n1,2,three\n")
    assert "row 1, column 'x3' is 'three', not a number" in bad(device)["data"]
    path.unlink()
    assert "is not there" in bad(device)["data"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ('["x1", "x2", "x3"]', ""),
        ('["x1", "x2", "z"]', "the column 'z' is missing"),
        ('["x1", "x2"]', "the column 'x3' is not among those declared"),
        ('["x1", "x3", "x2"]', "column 2 is 'x2' where 'x3' is declared"),
    ],
)
def test_columns_are_as_declared(device, columns, message):
    change(device, '# columns = ["first", "second"]', f"columns = {columns}")
    found = bad(device)
    assert found == {} if not message else message in found["data"]


def test_a_file_is_read_as_its_study_does(device):
    change(device, '# study = "consensus-graph"', 'study = "server-graph"')
    assert "y" in bad(device)["data"]  # which needs a target
    change(device, "server-graph", "no-such-study")
    assert "use one of" in bad(device)["data"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("requireprivacy = true", "did you mean 'require-privacy'"),
        ('max-epsilon = "0.5"', "must be a number"),
        ("colour = 3", "unknown in a node config"),
    ],
)
def test_a_wrong_key_is_told_and_such_a_device_does_not_start(device, capsys, key, message):
    path = device / "device.toml"
    path.write_text(path.read_text() + key + "\n")
    assert message in bad(device)["node config"]
    assert message in says(capsys, "device", "start", device, code=78)
    assert "E1" in CODES


def test_a_wrong_policy_is_told(device):
    path = device / "policy.toml"
    path.write_text("max-epsilom = 1.0\n")
    assert "did you mean 'max-epsilon'" in bad(device)["policy"]


def test_keys_that_others_read_or_that_are_missing(device, capsys):
    (device / "node.key").chmod(0o644)
    assert "is readable by others: chmod 600" in bad(device)["keys"]
    (device / "node.key").unlink()
    assert "node.key is missing" in bad(device)["keys"]
    assert "node.key is missing" in says(capsys, "device", "start", device, code=78)


def test_a_table_that_does_not_know_this_device(device):
    lines = (device / "peers.txt").read_text().splitlines()
    (device / "peers.txt").write_text("\n".join(line for line in lines if line[:2] != "a "))
    assert "does not list this device's key under its name 'a'" in bad(device)["signed keys"]


def test_each_fallback_is_looked_at_and_none_needs_to_be_there(device, capsys):
    one, two = free_port(), free_port()
    change(
        device,
        '# fallback = ["other.example.org:8443"]',
        f'fallback = ["127.0.0.1:{one}", "127.0.0.1:{two}"]',
    )
    assert bad(device) == {}
    words = says(capsys, "deploy", "check", device, code=1)
    for place, port in enumerate((one, two), start=1):
        assert f"warn fallback {place}: nobody answers at 127.0.0.1:{port}" in words
    assert "this device could not go there now" in words
    assert "1 to mend" in words  # the server, and that only


def test_a_mistake_in_the_fallbacks_is_told_and_such_a_device_does_not_start(device, capsys):
    change(device, '# fallback = ["other.example.org:8443"]', 'fallback = ["nowhere"]')
    words = says(capsys, "device", "start", device, code=78)
    assert "'nowhere': write the address as host:port" in words


@pytest.fixture
def superlink():
    """Something that answers as a SuperLink does, but over plain HTTP."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def plain(tmp_path, data, superlink):
    """A device without TLS, whose server answers and does not more."""
    folder, port = tmp_path / "plain", superlink.rpartition(":")[2]
    assert main(["deploy", "init", str(folder), "--data", str(data), "--port", port]) == 0
    return folder / "devices" / "a"


class Became(Exception):
    """What a process would have become."""


@pytest.fixture
def ways(monkeypatch):
    """Which way a device is started, in place of starting it: become the node, or look after it."""
    found = []

    def become(program, command, environment):
        found.append(("become", command[command.index("--superlink") + 1]))
        raise Became

    def stay(moving):
        found.append(("stay", moving._device.superlink, *moving._device.fallback))
        moving._tell("moved", moving._device.fallback[0], "it had to be")
        return 5

    monkeypatch.setattr("os.execve", become)
    monkeypatch.setattr("trellis.sim.federation.moving.Moving.run", stay)
    return found


def test_without_fallbacks_a_device_becomes_its_supernode(plain, superlink, ways):
    with pytest.raises(Became):
        main(["device", "start", str(plain)])
    assert ways == [("become", superlink)]


def test_with_fallbacks_it_stays_says_what_happens_and_ends_with_the_node_s_code(
    plain, superlink, ways, capsys
):
    change(plain, '# fallback = ["other.example.org:8443"]', 'fallback = ["localhost:9"]')
    words = says(capsys, "device", "start", plain, code=5)
    assert "a: moved to localhost:9 (it had to be)" in words
    says(capsys, "device", "start", plain, "--superlink", superlink, code=5)
    assert ways == [("stay", superlink, "localhost:9")] * 2
    words = says(capsys, "device", "log", plain / "state")
    assert words.count("moved localhost:9 it had to be") == 2
    # Who rehearses at another address does not end up at a real one.
    other = superlink.replace("127.0.0.1", "localhost")
    with pytest.raises(Became):
        main(["device", "start", str(plain), "--superlink", other])
    assert ways[-1] == ("become", other)


def test_a_server_that_answers_wrongly_ends_it_only_where_no_fallback_is_right(
    device, plain, superlink, ways, capsys
):
    # One that speaks TLS, to servers that do not: there is nowhere to go.
    text = (device / "device.toml").read_text()
    address = next(line for line in text.splitlines() if line.startswith("superlink"))
    change(device, address, f'superlink = "{superlink}"')
    other = superlink.replace("127.0.0.1", "localhost")
    change(device, '# fallback = ["other.example.org:8443"]', f'fallback = ["{other}"]')
    assert "does not speak TLS" in says(capsys, "device", "start", device, code=1)
    assert ways == []
    # One whose own is no SuperLink at all, and whose fallback is one.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        change(plain, superlink, f"127.0.0.1:{mute.getsockname()[1]}")
        change(plain, '# fallback = ["other.example.org:8443"]', f'fallback = ["{other}"]')
        words = says(capsys, "device", "start", plain, code=5)
    assert "does not answer as a SuperLink does" in words
    assert [way[0] for way in ways] == ["stay"]


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.isdir("/proc"), reason="needs /proc")
def test_a_state_folder_that_cannot_be_written(device, capsys):
    change(device, 'state-path = "state"', 'state-path = "/proc/trellis"')
    assert "cannot be written" in bad(device)["state folder"]
    assert "nothing could be released" in says(capsys, "device", "start", device, code=78)


def test_a_folder_without_a_device(tmp_path, capsys):
    assert "device.toml is missing" in says(capsys, "device", "start", tmp_path, code=78)
    assert "device.toml is missing" in says(capsys, "deploy", "check", tmp_path, code=1)
    assert "no federation here" in says(capsys, "deploy", "up", tmp_path, code=1)
    assert "no federation here" in says(capsys, "deploy", "down", tmp_path, code=1)


def test_a_run_that_does_not_fit_is_refused_before_anything_is_asked(device, capsys):
    federation = device.parents[1]
    words = says(capsys, "deploy", "run", federation, "server-graph", "--set", "servers=10", code=1)
    assert "servers=10: more than clients=3" in words
    words = says(capsys, "deploy", "run", federation, "consensus-graph", code=1)
    assert "nobody answers" in words
    assert "trellis deploy up" in words
    assert not (federation / "runs").exists()
