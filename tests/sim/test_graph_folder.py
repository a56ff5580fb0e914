"""What `trellis deploy init --servers` makes: every server's machine gets its own, and no more."""

from __future__ import annotations

import subprocess
import tomllib

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from trellis.privacy.device.policy_file import whole_config
from trellis.privacy.secagg.signing import load_trusted_keys
from trellis.sim.federation.device import Device
from trellis.sim.federation.folder import Federation, FederationError
from trellis.sim.federation.graph.create import Planned, create_graph
from trellis.sim.federation.graph.folder import Place, ServerGraph, is_graph

NAMES = ("server-0", "server-1", "server-2")
EDGES = ((0, 1), (1, 2))  # a path


def plans(tls=True, port=8443):
    host = "s{}.example.org" if tls else "127.0.0.1"
    return [
        Planned(
            [host.format(s), f"10.0.0.{s}"],
            port + s,
            {
                f"client-{i + 1}": {"partition-id": i, "num-partitions": 6, "server": s}
                for i in (2 * s, 2 * s + 1)
            },
        )
        for s in range(3)
    ]


def make(folder, tls=True, port=8443, **options):
    planned = plans(tls, port)
    addresses = tuple(f"{plan.hosts[0]}:{plan.port}" for plan in planned)
    topology = options["file"].name if "file" in options else "path"
    graph = ServerGraph(folder, NAMES, topology, EDGES, addresses, (2, 2, 2), tls)
    create_graph(graph, planned, **options)
    return graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return make(tmp_path_factory.mktemp("graph") / "g")


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def secrets(folder):
    return {path for path in files(folder) if path.suffix == ".key"}


def test_a_description_is_read_back(graph):
    assert ServerGraph.load(graph.folder) == graph
    assert is_graph(graph.folder)
    assert [graph.neighbours(name) for name in NAMES] == [
        ("server-1",),
        ("server-0", "server-2"),
        ("server-1",),
    ]
    assert graph.clients == 6
    assert graph.setting == "path"


def test_every_server_has_a_whole_federation_with_its_own_clients(graph):
    for number, name in enumerate(NAMES):
        federation = Federation.load(graph.server(name))
        assert federation.names == (f"client-{2 * number + 1}", f"client-{2 * number + 2}")
        assert federation.address == graph.addresses[number]
        nodes = [Device.load(federation.device(device)).node for device in federation.names]
        assert [node["partition-id"] for node in nodes] == [2 * number, 2 * number + 1]
        assert {node["num-partitions"] for node in nodes} == {6}
        assert {node["server"] for node in nodes} == {number}
        for node in nodes:
            whole_config(node)
            assert len(load_trusted_keys(node["trusted-keys"])) == 6
        place = Place.load(graph.server(name))
        assert (place.number, place.name, place.graph.edges) == (number, name, EDGES)
    assert Place.load(graph.folder) is None


def test_a_server_s_identity_is_at_home_only_and_known_to_all(graph):
    tables = {graph.own(name) / "servers.txt" for name in NAMES}
    assert len({path.read_bytes() for path in tables}) == 1
    lines = tables.pop().read_text().splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    for name, line in zip(NAMES, lines, strict=True):
        path = graph.own(name) / "identity.key"
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
        assert isinstance(key, ed25519.Ed25519PrivateKey)
        public = serialization.load_ssh_public_key(line.partition(" ")[2].encode())
        assert public == key.public_key()
        holders = [f for f in files(graph.folder) if path.read_bytes() in f.read_bytes()]
        assert holders == [path]
        assert path.stat().st_mode & 0o777 == 0o600
        assert (graph.own(name) / "spool").stat().st_mode & 0o777 == 0o700


def test_a_server_s_folder_has_no_private_key_of_another(graph):
    """Nor has a device's: every private key is in one folder only, the authority's in none."""
    found = secrets(graph.folder)
    # The authority; a server's certificate and identity; two keys a device; one a bridge.
    assert len(found) == 1 + 3 * 2 + 6 * 2 + 4
    assert len({path.read_bytes() for path in found}) == len(found)
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
    for path in found:
        content = path.read_bytes()
        assert {f for f in files(graph.folder) if content in f.read_bytes()} == {path}
    for name in NAMES:
        assert not any(path.name == "ca.key" for path in files(graph.server(name)))
        for device in Federation.load(graph.server(name)).names:
            place = graph.server(name) / "devices" / device
            assert {path.name for path in secrets(place)} == {"node.key", "signing.key"}
    assert graph.folder.stat().st_mode & 0o777 == 0o700


def test_a_bridge_belongs_to_one_server_and_is_known_to_the_other(graph):
    for first, second in EDGES:
        for number, other in ((first, second), (second, first)):
            name, neighbour = NAMES[number], NAMES[other]
            device = Device.load(graph.bridge(name, neighbour))
            assert device.name == f"bridge-of-{name}"
            assert device.superlink == graph.addresses[other]
            assert device.node == {"bridge": number, "spool": str(graph.own(name) / "spool")}
            whole_config(device.node)
            key = serialization.load_ssh_private_key(device.auth_key.read_bytes(), None)
            federation = Federation.load(graph.server(neighbour))
            assert device.name in federation.guests
            known = federation.public_key(device.name).read_bytes()
            assert serialization.load_ssh_public_key(known) == key.public_key()
    assert not graph.bridge("server-0", "server-2").exists()
    assert Federation.load(graph.server("server-0")).guests == ("bridge-of-server-1",)


def test_one_authority_signs_every_superlink(graph):
    authority = x509.load_pem_x509_certificate((graph.folder / "ca" / "ca.crt").read_bytes())
    for number, name in enumerate(NAMES):
        place = graph.server(name)
        own = x509.load_pem_x509_certificate((place / "server" / "server.crt").read_bytes())
        own.verify_directly_issued_by(authority)
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"s{number}.example.org" in names.get_values_for_type(x509.DNSName)
        assert f"10.0.0.{number}" in map(str, names.get_values_for_type(x509.IPAddress))
        trusted = {path.read_bytes() for path in place.rglob("ca.crt")}
        assert trusted == {(graph.folder / "ca" / "ca.crt").read_bytes()}


def test_scripts_units_and_compose_files_avoid_the_traps(graph):
    for path in graph.folder.rglob("start.sh"):
        assert path.stat().st_mode & 0o111
        subprocess.run(["/bin/sh", "-n", path], check=True)
    for path in graph.folder.rglob("compose.yaml"):
        (service,) = yaml.safe_load(path.read_text())["services"].values()
        assert service["restart"] == "always"
    for path in graph.folder.rglob("*.service"):
        assert "Restart=always" in path.read_text()
    bridge = graph.bridge("server-0", "server-1")
    (unit,) = bridge.glob("*.service")
    assert "device start /opt/trellis/server-0/bridges/server-1\n" in unit.read_text()
    assert "../../graph/spool:/graph/spool:ro" in (bridge / "compose.yaml").read_text()
    server = graph.server("server-0") / "server"
    assert "--database" in (server / "start.sh").read_text()
    # A run writes letters and results beside the SuperLink's folder.
    unit = (server / "trellis-server.service").read_text()
    assert "ReadWritePaths=/opt/trellis/server-0\n" in unit
    assert "/bin/sh /opt/trellis/server-0/server/start.sh" in unit


def test_nodes_of_one_machine_take_different_ports_and_homes(graph):
    folders = [graph.bridge("server-1", other) for other in ("server-0", "server-2")]
    folders += [graph.server("server-1") / "devices" / f"client-{i}" for i in (3, 4)]
    devices = [Device.load(folder) for folder in folders]
    assert len({device.home for device in devices}) == len(devices)
    for device in devices:
        arguments = device.arguments()
        assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert {device.port for device in devices} == {0}  # any free one


def test_without_tls_there_are_no_keys_of_nodes(tmp_path):
    graph = make(tmp_path / "g", tls=False)
    assert not (graph.folder / "ca").exists()
    assert {path.name for path in secrets(graph.folder)} == {"identity.key", "signing.key"}
    device = Device.load(graph.bridge("server-0", "server-1"))
    assert device.auth_key is None


def test_a_graph_s_file_goes_to_every_server(tmp_path):
    file = tmp_path / "towns.csv"
    file.write_text("server-0,server-1\nserver-1,server-2\n")
    graph = make(tmp_path / "g", file=file)
    assert graph.setting == str(graph.folder / "towns.csv")
    for name in NAMES:
        place = Place.load(graph.server(name))
        assert place.graph.setting == str(graph.own(name) / "towns.csv")
        assert (graph.own(name) / "towns.csv").read_text() == file.read_text()


def test_devices_may_go_to_neighbours_only_where_that_is_asked_for(graph, tmp_path):
    text = (graph.server("server-0") / "devices" / "client-1" / "device.toml").read_text()
    assert "fallback" not in tomllib.loads(text)
    assert Federation.load(graph.server("server-1")).visitors == ()
    moving = make(tmp_path / "g", rehome=True)
    for name in NAMES:
        federation, near = Federation.load(moving.server(name)), moving.neighbours(name)
        theirs = {c for other in near for c in Federation.load(moving.server(other)).names}
        assert set(federation.visitors) == theirs
        for device in federation.names:
            found = tomllib.loads((federation.device(device) / "device.toml").read_text())
            assert found["fallback"] == [moving.addresses[moving.number(o)] for o in near]
            own = federation.public_key(device).read_bytes()
            for other in near:
                there = Federation.load(moving.server(other)).public_key(device)
                assert there.read_bytes() == own


def test_what_is_no_graph_is_refused(graph, tmp_path):
    with pytest.raises(FederationError, match="is not empty"):
        make(graph.folder)
    with pytest.raises(FederationError, match="two servers at least"):
        ServerGraph(tmp_path, ("a",), "ring", (), ("x:1",), (1,), False)
    with pytest.raises(FederationError, match="numbered 0 to 1"):
        ServerGraph(tmp_path, ("a", "b"), "ring", ((0, 2),), ("x:1", "x:2"), (1, 1), False)
    with pytest.raises(FederationError, match="no server is called 'server-9'"):
        graph.number("server-9")
    with pytest.raises(FederationError, match=r"graph.toml is missing"):
        ServerGraph.load(tmp_path)
    (tmp_path / "graph.toml").write_text('names = "a,b"\n')
    with pytest.raises(FederationError, match="'edges' is missing or wrong"):
        ServerGraph.load(tmp_path)


@pytest.mark.parametrize("name", ["server", "bridge-of-server-1"])
def test_no_device_is_called_as_others_are(tmp_path, name):
    planned = [Planned(["127.0.0.1"], 8000 + s, {f"c{s}": {}}) for s in range(2)]
    planned[0] = Planned(["127.0.0.1"], 8000, {name: {}})
    graph = ServerGraph(
        tmp_path / "g", ("a", "b"), "path", ((0, 1),), ("x:1", "x:2"), (1, 1), False
    )
    with pytest.raises(FederationError, match=f"'{name}' is no name for a device"):
        create_graph(graph, planned)
    assert not (tmp_path / "g").exists()
