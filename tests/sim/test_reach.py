"""A look at a SuperLink says what is wrong, where a SuperNode would try for ever in silence."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from trellis.sim.federation import certificates
from trellis.sim.federation.certificates import make_authority, make_server
from trellis.sim.processes import free_port
from trellis.sim.reach import reach, split_address


class Health(BaseHTTPRequestHandler):
    date: str | None = None

    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def date_time_string(self, timestamp=None):
        return self.date or super().date_time_string(timestamp)

    def log_message(self, *_):
        pass


class Quiet(HTTPServer):
    def handle_error(self, *_):
        pass  # a client that does not like the certificate hangs up


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(pair=None, handler=Health):
        server = Quiet(("127.0.0.1", 0), handler)
        if pair is not None:
            (tmp_path / "server.crt").write_bytes(pair.public)
            (tmp_path / "server.key").write_bytes(pair.private)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def authority():
    return make_authority()


@pytest.fixture
def root(authority, tmp_path):
    path = tmp_path / "ca.crt"
    path.write_bytes(authority.pair.public)
    return path


def test_a_server_that_is_right_is_told_with_its_clock(serve, authority, root):
    found = reach(serve(make_server(authority, [])), root)
    assert found.ok
    assert "over TLS" in found.words
    assert abs(found.clock) < 3
    assert reach(serve(), None).ok


def test_nobody_there(root):
    found = reach(f"127.0.0.1:{free_port()}", root)
    assert (found.ok, found.there) == (False, False)
    assert "nobody answers" in found.words


def test_plain_against_tls_and_tls_against_plain(serve, authority, root):
    """The trap: either way a SuperNode tries again and again and says nothing."""
    found = reach(serve(make_server(authority, [])), None)
    assert (found.ok, found.there) == (False, True)
    assert "speaks TLS" in found.words
    found = reach(serve(), root)
    assert (found.ok, found.there) == (False, True)
    assert "does not speak TLS" in found.words


def test_another_authority_s_server(serve, root):
    found = reach(serve(make_server(make_authority(), [])), root)
    assert (found.ok, found.there) == (False, True)
    assert "is not signed by this side's root certificate" in found.words


def test_a_certificate_for_another_name(serve, authority, root, monkeypatch):
    monkeypatch.setattr(certificates, "_ALWAYS", ())
    found = reach(serve(make_server(authority, ["server.example.org"])), root)
    assert not found.ok
    assert "is not for '127.0.0.1'" in found.words


def test_a_certificate_of_another_time(serve, authority, root, monkeypatch):
    class Past(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.now(zone) - timedelta(days=365 * 20)

    monkeypatch.setattr(certificates, "datetime", Past)
    found = reach(serve(make_server(authority, [])), root)
    assert not found.ok
    assert "has expired, or this device's clock is ahead" in found.words


def test_a_clock_that_is_behind_shows(serve):
    class Ahead(Health):
        date = (datetime.now(UTC) + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")

    assert 3590 < reach(serve(handler=Ahead), None).clock < 3610


def test_something_else_on_the_port(serve):
    class Other(Health):
        def do_GET(self):
            self.send_response(404)
            self.end_headers()

    assert "is it a SuperLink?" in reach(serve(handler=Other), None).words


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:x", "host:70000"])
def test_what_is_no_address_is_named(address, tmp_path):
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)
    assert not reach(address, None).ok
    missing = reach("127.0.0.1:1", tmp_path / "none.crt")
    assert "cannot be read" in missing.words
    assert split_address("[::1]:8000") == ("::1", 8000)
