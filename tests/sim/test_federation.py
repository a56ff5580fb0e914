"""What `trellis deploy init` makes: whole, private where it must be, and nothing of the others."""

from __future__ import annotations

import shutil
import subprocess
import tomllib

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from trellis.privacy.device.policy import Policy
from trellis.privacy.device.policy_file import read_policy, whole_config
from trellis.privacy.secagg.signing import load_signing_key, load_trusted_keys
from trellis.sim.federation import scripts
from trellis.sim.federation.certificates import make_authority, make_server
from trellis.sim.federation.create import create
from trellis.sim.federation.device import Device
from trellis.sim.federation.folder import Federation, FederationError
from trellis.sim.flwr_command import CONNECTION

NAMES = ("north", "south", "west")


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path / "federation", NAMES, "server.example.org", 8443, True)
    data = tmp_path / "north.csv"
    data.write_text("a,b\n1,2\n3,5\n")
    create(made, hosts=["10.0.0.5"], data={"north": data})
    return made


def files(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def test_a_description_is_read_back(federation):
    assert Federation.load(federation.folder) == federation
    assert federation.address == "server.example.org:8443"


def test_private_files_are_for_their_owner_only(federation):
    secret = {path for path in files(federation.folder) if path.suffix == ".key"}
    assert len(secret) == 2 * len(NAMES) + 2
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    copied = federation.device("north") / "data" / "north.csv"
    assert copied.stat().st_mode & 0o777 == 0o600
    kept = [federation.folder, *(federation.device(name) / "state" for name in NAMES)]
    kept += [path.parent for path in secret]
    assert {folder.stat().st_mode & 0o777 for folder in kept} == {0o700}


def test_a_device_has_what_it_needs_and_nothing_of_the_others(federation):
    for name in NAMES:
        folder = federation.device(name)
        found = {path.name for path in folder.iterdir()}
        assert found == {
            "README.md", "ca.crt", "compose.yaml", "data", "device.toml", "node.key", "peers.txt",
            "policy.toml", "signing.key", "start.sh", "state", f"trellis-{name}.service",
        }  # fmt: skip
        device = Device.load(folder)
        own = load_signing_key(device.node["signing-key"])
        assert load_trusted_keys(device.node["trusted-keys"])[name] == own.public_key()
        for other in set(NAMES) - {name}:
            theirs = (federation.device(other) / "node.key").read_bytes()
            assert all(theirs not in path.read_bytes() for path in files(folder))
    # The authority's key, with which anybody could be the server, is in no machine's folder.
    authority = (federation.folder / "ca" / "ca.key").read_bytes()
    holders = [path for path in files(federation.folder) if path.read_bytes() == authority]
    assert [path.parent.name for path in holders] == ["ca"]


def test_keys_are_of_the_kinds_that_flower_and_secure_sums_want(federation):
    for name in NAMES:
        folder = federation.device(name)
        node = serialization.load_ssh_private_key((folder / "node.key").read_bytes(), None)
        assert isinstance(node, ec.EllipticCurvePrivateKey)
        assert node.curve.name == "secp384r1"
        known = serialization.load_ssh_public_key(federation.public_key(name).read_bytes())
        assert known == node.public_key()
        assert isinstance(load_signing_key(folder / "signing.key"), ed25519.Ed25519PrivateKey)


@pytest.mark.parametrize("host", ["server.example.org", "10.0.0.5", "localhost", "127.0.0.1"])
def test_the_server_is_believed_by_its_names(federation, host):
    chain = verify(federation.folder, host)
    assert len(chain) == 2


def test_the_server_is_not_believed_by_another_name_or_of_another_authority(federation):
    with pytest.raises(VerificationError):
        verify(federation.folder, "elsewhere.example.org")
    stranger = make_server(make_authority(), ["server.example.org"])
    (federation.folder / "server" / "server.crt").write_bytes(stranger.public)
    with pytest.raises(VerificationError):
        verify(federation.folder, "server.example.org")


def verify(folder, host):
    from cryptography.x509 import DNSName, IPAddress

    import ipaddress  # isort: skip

    authority = x509.load_pem_x509_certificate((folder / "ca" / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((folder / "server" / "server.crt").read_bytes())
    try:
        subject = IPAddress(ipaddress.ip_address(host))
    except ValueError:
        subject = DNSName(host)
    builder = PolicyBuilder().store(Store([authority]))
    return builder.build_server_verifier(subject).verify(server, [])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_openssl_agrees(federation):
    folder = federation.folder
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver"]
    command += ["-CAfile", folder / "ca" / "ca.crt", folder / "server" / "server.crt"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_policies_protect_unless_they_are_asked_not_to(federation, tmp_path):
    config = whole_config(Device.load(federation.device("north")).node)
    policy = Policy.from_node_config(config)
    assert policy.modes == ("dp",)
    assert (policy.max_epsilon, policy.run_epsilon) == (10.0, 1.0)
    assert not policy.clear_updates
    loose = Federation(tmp_path / "open", ("a",), "127.0.0.1", 8000, False)
    create(loose, open_policy=True)
    read_policy(loose.device("a") / "policy.toml")
    node = Device.load(loose.device("a")).node
    assert Policy.from_node_config(node).modes == ("none", "paper", "dp")


def test_flower_is_told_where_the_server_is(federation):
    config = tomllib.loads((federation.folder / "operator" / "config.toml").read_text())
    assert config["superlink"][CONNECTION] == {
        "address": "server.example.org:8443",
        "root-certificates": str(federation.folder / "operator" / "ca.crt"),
    }


def test_a_device_s_paths_are_absolute_and_its_options_flower_s(federation):
    device = Device.load(federation.device("north"))
    assert device.node["data-path"] == str(federation.device("north") / "data" / "north.csv")
    arguments = device.arguments()
    for option in ("--root-certificates", "--auth-supernode-private-key", "--node-config"):
        assert arguments[arguments.index(option) + 1].startswith(str(device.folder))
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    written = tomllib.loads((device.folder / "flower" / "node-config.toml").read_text())
    assert written == dict(device.node)


def test_a_device_goes_nowhere_but_where_its_owner_says(federation):
    path = federation.device("north") / "device.toml"
    device = Device.load(path.parent)
    assert (device.fallback, device.fallback_after) == ((), 30.0)
    text = path.read_text().replace('# fallback = ["other', 'fallback = ["b.org:1", "other')
    path.write_text(text.replace("# fallback-after = 30", "fallback-after = 4"))
    device = Device.load(path.parent)
    assert device.fallback == ("b.org:1", "other.example.org:8443")
    assert device.fallback_after == 4.0
    assert device.at(device.superlink) is device
    away = device.at("b.org:1")
    assert away.arguments()[:2] == ["--superlink", "b.org:1"]
    # Certificate, key and data are the same; the ledger must not name the own server.
    assert (away.root_certificates, away.auth_key) == (device.root_certificates, device.auth_key)
    assert away.node == {**device.node, "server-name": "b.org:1"}
    whole_config(away.node)
    with pytest.raises(FederationError, match=r"c\.org:1 is not among its fallbacks"):
        device.at("c.org:1")


def test_two_devices_on_a_machine_take_two_ports(federation):
    """The trap: one --port for both, and the second node dies."""
    taken = []
    for name in NAMES:
        arguments = Device.load(federation.device(name)).arguments()
        taken.append(int(arguments[arguments.index("--port") + 1]))
    assert len(set(taken)) == len(NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('superlnk = "x:1"', "unknown key 'superlnk'; did you mean 'superlink'"),
        ("superlink = 3", "superlink=3 must be a text"),
        ('superlink = "x:1"\nport = "9000"', "port='9000' must be from 0"),
        ('superlink = "x:1"', r"the table \[node\] is missing"),
        ('superlink = "x:1"\n[node]\nstudies = ["a"]', "studies in .node. must be a text"),
        ('superlink = "x:1"\ncolumns = "a"\n[node]', "columns must be a list of texts"),
        ('superlink = "x:1"\nfallback = "y:1"\n[node]', "fallback must be a list of texts"),
        ('superlink = "x:1"\nfallback = [3]\n[node]', "fallback must be a list of texts"),
        ('superlink = "x:1"\nfallback = ["y"]\n[node]', "fallback: 'y': write .* as host:port"),
        ('superlink = "x:1"\nfallback = ["x:1"]\n[node]', "is the device's own superlink"),
        ('superlink = "x:1"\nfallback = ["y:1", "y:1"]\n[node]', "fallback names y:1 twice"),
        ('superlink = "x:1"\nfallbak = []', "unknown key 'fallbak'; did you mean 'fallback'"),
        ('superlink = "x:1"\nfallback-after = "30"\n[node]', "fallback-after='30' must be a numb"),
        ('superlink = "x:1"\nfallback-after = true\n[node]', "fallback-after=True must be"),
        ('superlink = "x:1"\nfallback-after = 0.5\n[node]', "fallback-after=0.5 .* at least 1"),
        ('superlink = "x:1"\nfallback-after = inf\n[node]', "fallback-after=inf must be"),
        ("superlink =", "cannot be read"),
    ],
)
def test_a_mistake_in_device_toml_is_named(tmp_path, text, message):
    (tmp_path / "device.toml").write_text(text)
    with pytest.raises(FederationError, match=message):
        Device.load(tmp_path)


@pytest.mark.parametrize(
    ("names", "port", "message"),
    [
        ((), 1, "at least one device"),
        (("a", "a"), 1, "two devices"),
        (("../a",), 1, "no name for a device"),
        (("a b",), 1, "no name for a device"),
        (("a",), 0, "port=0"),
    ],
)
def test_what_is_no_federation_is_refused(tmp_path, names, port, message):
    with pytest.raises(FederationError, match=message):
        Federation(tmp_path, names, "127.0.0.1", port, False)


def test_nothing_is_written_over(federation):
    with pytest.raises(FederationError, match="is not empty"):
        create(federation)
    with pytest.raises(FederationError, match="no federation here"):
        Federation.load(federation.folder / "devices")


def test_scripts_are_shell_and_compose_files_yaml(federation):
    folder = federation.folder
    for script in folder.rglob("start.sh"):
        assert script.stat().st_mode & 0o111
        subprocess.run(["/bin/sh", "-n", script], check=True)
    for path in folder.rglob("compose.yaml"):
        (service,) = yaml.safe_load(path.read_text())["services"].values()
        image = service["build"]["dockerfile_inline"].splitlines()[0]
        assert image.startswith("FROM flwr/super")
        assert image.endswith(f":{scripts.FLOWER}")


def test_the_superlink_always_has_a_database_and_with_tls_knows_its_devices(federation, tmp_path):
    script = (federation.folder / "server" / "start.sh").read_text()
    assert "--database" in script
    assert "--enable-supernode-auth" in script
    assert "--insecure" not in script
    plain = scripts.server_script(Federation(tmp_path, ("a",), "127.0.0.1", 8000, False))
    assert "--database" in plain
    assert "127.0.0.1" in plain
    assert "0.0.0.0" not in plain


def test_units_start_again_whatever_the_code(federation):
    """The trap: SuperNodes end with code 0 where a SuperLink without a database restarts."""
    for unit in federation.folder.rglob("*.service"):
        text = unit.read_text()
        assert "Restart=always" in text
        assert "RestartSec=15" in text
        assert f"RestartPreventExitStatus={scripts.NOT_CONFIGURED}" in text
    device = (federation.device("north") / "trellis-north.service").read_text()
    # Not flower-supernode by its path: it would not find flower-superexec.
    assert "ExecStart=/opt/trellis/venv/bin/trellis device start /opt/trellis/north" in device


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit(federation, tmp_path):
    program = tmp_path / "trellis"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (federation.device("north") / "trellis-north.service").read_text()
    text = text.replace("/opt/trellis/venv/bin/trellis", str(program)).replace("User=trellis", "")
    unit = tmp_path / "trellis-north.service"
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    about = [line for line in done.stderr.splitlines() if "trellis-north" in line]
    assert about == []


def test_start_sh_starts_again_but_not_what_it_cannot_mend(federation, tmp_path):
    calls = tmp_path / "calls"
    fake = tmp_path / "bin" / "trellis"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\n'
        f'[ "$(wc -l < {calls})" -ge 3 ] && exit {scripts.NOT_CONFIGURED}\nexit 0\n'
    )
    fake.chmod(0o755)
    script = federation.device("north") / "start.sh"
    environment = {"PATH": "/usr/bin:/bin", "TRELLIS_BIN": str(fake.parent), "TRELLIS_AGAIN": "0"}
    done = subprocess.run([script, "--superlink", "x:1"], env=environment, timeout=30)
    assert done.returncode == scripts.NOT_CONFIGURED
    assert calls.read_text().splitlines() == ["device start . --superlink x:1"] * 3
