"""What a federation's folder holds, and where.

- ``federation.toml``: the description: names, address, port, whether with TLS
- ``ca/``: the certificate authority's private key; no machine needs it
- ``server/``: for the machine of the SuperLink
- ``operator/``: for who submits runs: Flower's config.toml, the devices' public keys
- ``devices/NAME/``: for one device: everything it needs, and nothing of the others
- ``rehearsal/``: processes on this machine, their logs
- ``runs/``: what ``trellis deploy run`` leaves
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.sim.run_config import Scalar, toml

DESCRIPTION = "federation.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class FederationError(RuntimeError):
    """A federation's folder that cannot be used, or something in it that does not work."""


@dataclass(frozen=True)
class Federation:
    """One federation, as its folder describes it.

    Attributes
    ----------
    folder : absolute
    names : of the devices, in the order of their partitions
    host : name or address by which devices and operator reach the SuperLink
    port : of the SuperLink
    tls : whether with TLS and authenticated devices
    guests : nodes that connect to this SuperLink and whose folders are elsewhere, as the bridges of
        neighbours in a graph of servers (`trellis.sim.federation.graph`)
    visitors : devices of other servers that may come while their own is gone; the SuperLink knows
        their keys, and does not miss them
    """

    folder: Path
    names: tuple[str, ...]
    host: str
    port: int
    tls: bool
    guests: tuple[str, ...] = ()
    visitors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            raise FederationError("a federation needs at least one device")
        for name in self.known:
            if not _NAME.fullmatch(name):
                raise FederationError(
                    f"{name!r} is no name for a device: letters, digits, . _ and -, 63 at most, a "
                    "letter or digit first"
                )
        if twice := sorted({name for name in self.known if self.known.count(name) > 1}):
            raise FederationError(f"{twice[0]!r} is the name of two devices")
        if not 0 < self.port < 65536:
            raise FederationError(f"port={self.port}: must be from 1 to 65535")

    @classmethod
    def load(cls, folder: Path) -> Federation:
        """Read the description in ``folder``.

        Raises
        ------
        FederationError
            Where there is none, or it cannot be used.
        """
        folder = folder.resolve()
        path = folder / DESCRIPTION
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FederationError(
                f"{folder}: no federation here; make one: trellis deploy init {folder} --clients 3"
            ) from None
        except (OSError, ValueError) as error:
            raise FederationError(f"{path}: cannot be read ({error})") from None
        try:
            names = tuple(str(found["names"]).split(","))
            guests, visitors = _listed(found, "guests"), _listed(found, "visitors")
            host, port, tls = str(found["host"]), int(found["port"]), found["tls"] is True
        except (KeyError, TypeError, ValueError) as error:
            raise FederationError(f"{path}: {error} is missing or wrong") from None
        return cls(folder, names, host, port, tls, guests, visitors)

    def description(self) -> str:
        """Return the text of `DESCRIPTION`."""
        settings: dict[str, Scalar] = {
            "names": ",".join(self.names),
            "host": self.host,
            "port": self.port,
            "tls": self.tls,
        }
        for key, names in (("guests", self.guests), ("visitors", self.visitors)):
            if names:
                settings[key] = ",".join(names)
        return "# Made by trellis deploy init.\n" + toml(settings)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Everybody who should be connected to the SuperLink: devices and guests."""
        return self.names + self.guests

    @property
    def known(self) -> tuple[str, ...]:
        """Everybody whose key the SuperLink is told."""
        return self.nodes + self.visitors

    @property
    def address(self) -> str:
        """``host:port`` of the SuperLink, as devices use it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def here(self) -> str:
        """``host:port`` of the SuperLink for who is on its machine."""
        return f"127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path | None:
        """The CA's certificate; None without TLS."""
        return self.folder / "operator" / "ca.crt" if self.tls else None

    def device(self, name: str) -> Path:
        """Return the folder of one device."""
        return self.folder / "devices" / name

    def public_key(self, name: str) -> Path:
        """Return the file of the key by which the SuperLink knows a device."""
        return self.folder / "operator" / "keys" / f"{name}.pub"


def _listed(found: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(name for name in str(found.get(key, "")).split(",") if name)
