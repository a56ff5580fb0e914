"""Whether a SuperLink can be reached, and in words why not.

A SuperNode tries for ever, in silence, against a server that speaks TLS where it does not, and the
other way round. So whoever starts one looks first: one connection, one request, no Flower.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

_PATIENCE = 5.0
# OpenSSL's numbers of what is wrong with a certificate.
_NOT_YET, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


@dataclass(frozen=True)
class Reach:
    """What came of one try to talk to a SuperLink.

    Attributes
    ----------
    ok : whether it answered as it should
    there : whether anybody listens; where nobody does, waiting may help
    words : what was found
    clock : seconds by which the server's clock is ahead of ours; None where it did not say
    """

    ok: bool
    there: bool
    words: str
    clock: float | None = None


def reach(address: str, root_certificates: Path | None, patience: float = _PATIENCE) -> Reach:
    """Try to talk to the SuperLink at ``address`` (host:port).

    Parameters
    ----------
    address : as in ``--superlink``; an IPv6 address stands in brackets
    root_certificates : the certificate of its CA; None where it speaks plain HTTP
    patience : seconds to wait for a connection, and for an answer
    """
    try:
        host, port = split_address(address)
        context = None if root_certificates is None else _context(root_certificates)
    except (ValueError, OSError) as error:
        return Reach(False, True, str(error))
    try:
        connection = socket.create_connection((host, port), timeout=patience)
    except (OSError, UnicodeError) as error:  # the latter of a host that no name can be
        why = getattr(error, "strerror", "") or str(error) or type(error).__name__
        return Reach(False, False, f"nobody answers at {address} ({why})")
    with connection:
        try:
            if context is None:
                return _plain(address, connection)
            return _secure(address, host, connection, context)
        except ssl.SSLCertVerificationError as error:
            return Reach(False, True, _bad_certificate(address, host, error))
        except ssl.SSLError:
            words = (
                f"{address} does not speak TLS, and this side has a root certificate: start the "
                "SuperLink with its certificates"
            )
            return Reach(False, True, words)
        except OSError as error:
            why = error.strerror or str(error)
            return Reach(False, True, f"{address} does not answer as a SuperLink does ({why})")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r}: write the address as host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _context(root_certificates: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(root_certificates))
    except ssl.SSLError:
        raise ValueError(f"{root_certificates}: no certificate in PEM format") from None
    except OSError as error:
        raise ValueError(f"{root_certificates}: cannot be read ({error.strerror})") from None


def _secure(address: str, host: str, connection: socket.socket, context: ssl.SSLContext) -> Reach:
    with context.wrap_socket(connection, server_hostname=host) as secure:
        return _answer(address, _ask(secure, host), "over TLS, with a certificate of this CA")


def _plain(address: str, connection: socket.socket) -> Reach:
    answer = _ask(connection, address.rpartition(":")[0])
    # A server that speaks TLS answers a plain request with an alert, or hangs up.
    if not answer.startswith(b"HTTP/"):
        words = (
            f"{address} speaks TLS, or is no SuperLink, and this side has no root certificate: a "
            "node started as --insecure would try for ever, in silence"
        )
        return Reach(False, True, words)
    return _answer(address, answer, "without TLS")


def _ask(connection: socket.socket, host: str) -> bytes:
    connection.sendall(f"GET /health HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    try:
        while len(answer) < 8192 and b"\r\n\r\n" not in answer:
            if not (more := connection.recv(4096)):
                break
            answer += more
    except ConnectionError:
        pass  # what came before it counts
    return answer


def _answer(address: str, answer: bytes, how: str) -> Reach:
    first, _, rest = answer.decode("latin-1").partition("\r\n")
    if " 200" not in first:
        return Reach(False, True, f"{address} answers {first!r}: is it a SuperLink?")
    clock = None
    for line in rest.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            with suppress(ValueError, TypeError):  # whatever it says: no clock, and no crash
                told = parsedate_to_datetime(value.strip())
                clock = (told - datetime.now(UTC)).total_seconds()
    return Reach(True, True, f"{address} answers, {how}", clock)


def _bad_certificate(address: str, host: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        return (
            f"the certificate of {address} is not for {host!r}: use a name that it was made for, "
            "or make the federation with --host"
        )
    if error.verify_code == _EXPIRED:
        return f"the certificate of {address} has expired, or this device's clock is ahead"
    if error.verify_code == _NOT_YET:
        return f"the certificate of {address} is not valid yet, or this device's clock is behind"
    return (
        f"the certificate of {address} is not signed by this side's root certificate "
        f"({error.verify_message}): wrong certificate, or somebody else's server"
    )
