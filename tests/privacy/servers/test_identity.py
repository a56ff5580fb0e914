"""By what servers know each other: signed greetings, and the files of a server's folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.graphs import server_folders
from trellis.privacy.secagg.errors import BadMessage
from trellis.privacy.servers.identity import Greeting, Identity
from trellis.sim.federation.certificates import make_signing_key

SESSION = b"a run of servers"
GREETING = Greeting(1, 7, bytes(range(32)), b"m" * 32, "terms", {"clients": 3})


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folders = server_folders(tmp_path_factory.mktemp("servers"), 3)
    return [Identity.load(folder, server, 3) for server, folder in enumerate(folders)]


def test_a_greeting_is_read_by_all_as_it_was_written(servers):
    signed = servers[1].greet(SESSION, GREETING)
    assert [server.read(SESSION, signed) for server in servers] == [GREETING] * 3


def test_a_change_of_any_byte_is_refused(servers):
    signed = servers[1].greet(SESSION, GREETING)
    for place in range(len(signed)):
        changed = bytearray(signed)
        changed[place] ^= 1
        with pytest.raises(BadMessage):
            servers[0].read(SESSION, bytes(changed))


@pytest.mark.parametrize("length", [0, 1, 2, 10, 66, 80])
def test_a_greeting_that_is_cut_short_is_refused(servers, length):
    with pytest.raises(BadMessage):
        servers[0].read(SESSION, servers[1].greet(SESSION, GREETING)[:length])


def test_a_greeting_signed_by_another_server_is_refused_by_name(servers):
    forged = servers[2].greet(SESSION, GREETING)  # says to be of server 1
    with pytest.raises(BadMessage, match="a greeting that server-1 has not signed"):
        servers[0].read(SESSION, forged)


def test_a_greeting_of_another_run_is_refused(servers):
    with pytest.raises(BadMessage, match="server-1 has not signed for this run"):
        servers[0].read(SESSION, servers[1].greet(b"another run", GREETING))


@pytest.mark.parametrize("server", [3, -1])
def test_a_server_that_is_not_in_the_table_is_refused(servers, server):
    unknown = servers[1].greet(SESSION, replace(GREETING, server=server))
    with pytest.raises(BadMessage, match=f"server {server}, which is not in servers.txt"):
        servers[0].read(SESSION, unknown)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"3", b"\xff", b"[" * 5000, GREETING.encode().replace(b'"server": 1', b"")]
    + [GREETING.encode().replace(b": 7", text) for text in (b": true", b": 7.5", b': "7"')]
    + [replace(GREETING, **{key: b"short"}).encode() for key in ("box", "mask")]
    + [GREETING.encode().replace(b'{"clients": 3}', b"[]")],
)
def test_no_greeting_at_all_is_refused(content):
    with pytest.raises(BadMessage, match="no greeting of a server"):
        Greeting.decode(content)


# --- the folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["identity.key", "servers.txt"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = server_folders(tmp_path, 2)[0]
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"server-folder='.*server-0': {name} is missing"):
        Identity.load(folder, 0, 2)


def test_a_table_of_another_number_of_servers_is_named(tmp_path):
    folder = server_folders(tmp_path, 2)[0]
    with pytest.raises(ValueError, match=r"servers.txt: 2 servers, the run has 3; one line each"):
        Identity.load(folder, 0, 3)


def test_another_servers_key_is_named(tmp_path):
    folder = server_folders(tmp_path, 2)[0]
    with pytest.raises(ValueError, match=r"identity.key: not the key of server 1 \(server-1\)"):
        Identity.load(folder, 1, 2)


@pytest.mark.parametrize("name", ["identity.key", "servers.txt"])
def test_a_file_that_holds_something_else_is_named(tmp_path, name):
    folder = server_folders(tmp_path, 2)[0]
    (folder / name).write_text("nothing of use\n")
    with pytest.raises(ValueError, match=name):
        Identity.load(folder, 0, 2)


def test_one_key_for_two_servers_is_refused(tmp_path):
    folder = server_folders(tmp_path, 2)[0]
    first = (folder / "servers.txt").read_text().splitlines()[0].partition(" ")[2]
    (folder / "servers.txt").write_text(f"a {first}\nb {first}\n")
    with pytest.raises(ValueError, match=r"servers.txt', line 2: 'b' or its key is there twice"):
        Identity.load(folder, 0, 2)


def test_a_key_of_another_kind_is_compared_as_well(tmp_path):
    """ECDSA, which the signatures can: it has no raw bytes to compare."""
    folder = server_folders(tmp_path, 2)[0]
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    other = make_signing_key().public.strip()
    (folder / "servers.txt").write_bytes(b"one %s\ntwo %s\n" % (public, other))
    with pytest.raises(ValueError, match=r"identity.key: not the key of server 0"):
        Identity.load(folder, 0, 2)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "identity.key").write_bytes(private)
    identity = Identity.load(folder, 0, 2)
    greeting = replace(GREETING, server=0)
    assert identity.read(SESSION, identity.greet(SESSION, greeting)) == greeting
