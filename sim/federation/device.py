"""One device's folder: what its ``device.toml`` says, and the SuperNode it starts.

    name = "ward-1"
    superlink = "server.example.org:8443"
    root-certificates = "ca.crt"      # left out: without TLS
    auth-key = "node.key"             # left out: not authenticated
    port = 0                          # of the node's own API, on loopback only; 0 takes a free one
    study = "consensus-graph"         # for trellis deploy check; may be left out, as the next
    columns = ["a", "b"]
    fallback = ["other.example.org:8443"]  # SuperLinks to use while the own one is gone, in order
    fallback-after = 30               # seconds without an answer until it counts as gone

    [node]                            # Flower's node config
    data-path = "data/ward-1.csv"

Paths may be relative to the folder. A key that is not known is an error that names the nearest one.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trellis.sim.processes import free_port
from trellis.sim.reach import split_address
from trellis.sim.run_config import Scalar, toml

from .folder import FederationError

DEVICE = "device.toml"
HOME = "flower"  # the FLWR_HOME of the device, in its folder
_PATHS = ("data-path", "state-path", "policy", "signing-key", "trusted-keys", "spool")
_KEYS = (
    "name",
    "superlink",
    "root-certificates",
    "auth-key",
    "port",
    "study",
    "columns",
    "fallback",
    "fallback-after",
    "node",
)
_FALLBACK_AFTER = 30.0


@dataclass(frozen=True)
class Device:
    """What a device's folder says of it; all paths absolute.

    Attributes
    ----------
    folder : the device's
    name : by which it is registered
    superlink : ``host:port``
    root_certificates : of the SuperLink's CA; None without TLS
    auth_key : the private key by which it proves itself; None where it does not
    port : of the SuperNode's own API; 0 is any free one
    node : the node config
    study, columns : what its file is for and must hold; empty where that is not said
    fallback : SuperLinks to use while its own is gone, in this order
    fallback_after : seconds without an answer until a SuperLink counts as gone
    """

    folder: Path
    name: str
    superlink: str
    root_certificates: Path | None
    auth_key: Path | None
    port: int
    node: Mapping[str, Scalar]
    study: str = ""
    columns: tuple[str, ...] = field(default=())
    fallback: tuple[str, ...] = field(default=())
    fallback_after: float = _FALLBACK_AFTER

    @classmethod
    def load(cls, folder: Path) -> Device:
        """Read ``device.toml`` in ``folder``.

        Raises
        ------
        FederationError
            Names the file, the key and what is wrong with it.
        """
        folder = folder.resolve()
        path = folder / DEVICE
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FederationError(f"{folder}: no device's folder, {DEVICE} is missing") from None
        except (OSError, ValueError) as error:
            raise FederationError(f"{path}: cannot be read ({error})") from None
        for key in found:
            if key not in _KEYS:
                close = difflib.get_close_matches(key, _KEYS, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
                raise FederationError(f"{path}: unknown key {key!r}; {hint}")
        reader = _Reader(path, found)
        return cls(
            folder,
            reader.text("name", folder.name),
            reader.text("superlink"),
            reader.file("root-certificates"),
            reader.file("auth-key"),
            reader.port(),
            reader.node(),
            reader.text("study", ""),
            reader.words("columns"),
            reader.fallback(),
            reader.fallback_after(),
        )

    @property
    def home(self) -> Path:
        """The device's own ``FLWR_HOME``."""
        return self.folder / HOME

    def at(self, address: str) -> Device:
        """Return this device as it is at another SuperLink, one that its owner has named.

        Raises
        ------
        FederationError
            Where the owner has not named it.
        """
        if address == self.superlink:
            return self
        if address not in self.fallback:
            raise FederationError(f"{self.folder / DEVICE}: {address} is not among its fallbacks")
        # The owner's word for the server is for the own one; log and ledger must not name that.
        return replace(self, superlink=address, node={**self.node, "server-name": address})

    def arguments(self) -> list[str]:
        """Return flower-supernode's options, and write the node config they name."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        # A file and not the command line: Flower takes no quote inside a string there.
        file = self.home / "node-config.toml"
        file.write_text(toml(self.node), encoding="utf-8")
        security = ["--insecure"]
        if self.root_certificates is not None:
            security = ["--root-certificates", str(self.root_certificates)]
        if self.auth_key is not None:
            security += ["--auth-supernode-private-key", str(self.auth_key)]
        port = self.port or free_port()
        where = ["--host", "127.0.0.1", "--port", str(port)]
        return ["--superlink", self.superlink, *security, *where, "--node-config", str(file)]


class _Reader:
    """Values of a device.toml, each refused with words where it is of the wrong kind."""

    def __init__(self, path: Path, found: Mapping[str, Any]) -> None:
        self._path, self._found = path, found

    def text(self, key: str, default: str | None = None) -> str:
        value = self._found.get(key, default)
        if not isinstance(value, str):
            raise FederationError(f"{self._path}: {key}={value!r} must be a text")
        return value

    def file(self, key: str) -> Path | None:
        return self._path.parent / self.text(key) if key in self._found else None

    def port(self) -> int:
        value = self._found.get("port", 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 65536:
            raise FederationError(f"{self._path}: port={value!r} must be from 0 to 65535")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self._found.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise FederationError(f'{self._path}: {key} must be a list of texts, as ["a", "b"]')
        return tuple(value)

    def fallback(self) -> tuple[str, ...]:
        addresses = self.words("fallback")
        for place, address in enumerate(addresses):
            try:
                split_address(address)
            except ValueError as error:
                raise FederationError(f"{self._path}: fallback: {error}") from None
            if address == self._found.get("superlink"):
                raise FederationError(
                    f"{self._path}: fallback names {address}, which is the device's own superlink"
                )
            if address in addresses[:place]:
                raise FederationError(f"{self._path}: fallback names {address} twice")
        return addresses

    def fallback_after(self) -> float:
        value = self._found.get("fallback-after", _FALLBACK_AFTER)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 1.0 <= value < math.inf:
            raise FederationError(
                f"{self._path}: fallback-after={value!r} must be a number of seconds, at least 1"
            )
        return float(value)

    def node(self) -> dict[str, Scalar]:
        table = self._found.get("node")
        if not isinstance(table, dict):
            raise FederationError(f"{self._path}: the table [node] is missing")
        config: dict[str, Scalar] = {}
        for key, value in table.items():
            if not isinstance(value, str | int | float | bool):
                raise FederationError(
                    f"{self._path}: {key} in [node] must be a text, a number, true or false; what "
                    "takes a list goes into the policy file"
                )
            if key in _PATHS and isinstance(value, str) and value:
                value = str(self._path.parent / value)
                # Of data, a link is what its owner wants; a spool is named from a folder below it.
                value = str(Path(value).resolve()) if key == "spool" else value
            config[key] = value
        return config
