"""Make a federation's folder: every file in its place, private ones for their owner only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.flwr_command import connection_toml

from . import scripts, texts
from .certificates import make_authority, make_node_key, make_server, make_signing_key
from .device import DEVICE
from .folder import DESCRIPTION, Federation, FederationError


def create(
    federation: Federation,
    *,
    hosts: Sequence[str] = (),
    data: Mapping[str, Path] | None = None,
    open_policy: bool = False,
) -> None:
    """Write everything into the federation's folder, which must be empty or not there.

    Parameters
    ----------
    federation : what to make
    hosts : names and addresses by which the SuperLink is reached, for its certificate
    data : a file or folder for each device, copied into its folder
    open_policy : let devices take part in runs without privacy, for trying out

    Raises
    ------
    FederationError
        Where there is something already.
    """
    folder = federation.folder
    if folder.exists() and any(folder.iterdir()):
        raise FederationError(f"{folder} is not empty: a federation is made in a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o700)  # keys of all devices are in here until their owners have them
    _server_and_operator(federation, hosts)
    signing = {name: make_signing_key() for name in federation.names}
    peers = texts.peers({name: pair.public for name, pair in signing.items()})
    for name in federation.names:
        place = federation.device(name)
        source = (data or {}).get(name)
        file = texts.data_name(source, name)
        _private(place / "signing.key", signing[name].private)
        if federation.tls:
            node = make_node_key()
            _private(place / "node.key", node.private)
            _public(federation.public_key(name), node.public)
            shutil.copyfile(folder / "operator" / "ca.crt", place / "ca.crt")
        _public(place / "peers.txt", peers)
        _public(place / DEVICE, texts.device_toml(federation, name, file))
        _public(place / "policy.toml", texts.OPEN_POLICY if open_policy else texts.POLICY)
        _script(place / "start.sh", scripts.device_script())
        _public(place / f"trellis-{name}.service", scripts.device_unit(name))
        _public(place / "compose.yaml", scripts.device_compose(name))
        _public(place / "README.md", texts.device_page(federation, name, file))
        for part in ("data", "state"):
            (place / part).mkdir(mode=0o700)
        if source is not None:
            _copy(source, place / "data" / file)
    _public(folder / "README.md", texts.top_page(federation))
    # Last: a folder with a description is whole.
    _public(folder / DESCRIPTION, federation.description())


def _server_and_operator(federation: Federation, hosts: Sequence[str]) -> None:
    folder = federation.folder
    server, operator = folder / "server", folder / "operator"
    for place in (server, operator):
        place.mkdir(mode=0o700)
    if federation.tls:
        authority = make_authority()
        pair, own = authority.pair, make_server(authority, [federation.host, *hosts])
        _private(folder / "ca" / "ca.key", pair.private)
        _public(folder / "ca" / "ca.crt", pair.public)
        _private(server / "server.key", own.private)
        _public(server / "server.crt", own.public)
        for place in (server, operator):
            _public(place / "ca.crt", pair.public)
    _script(server / "start.sh", scripts.server_script(federation))
    _public(server / "trellis-server.service", scripts.server_unit())
    _public(server / "compose.yaml", scripts.server_compose())
    _public(server / "README.md", texts.server_page(federation))
    _public(operator / "config.toml", connection_toml(federation.address, federation.certificate))


def _public(path: Path, content: str | bytes) -> None:
    _write(path, content, 0o644)


def _script(path: Path, content: str) -> None:
    _write(path, content, 0o755)


def _private(path: Path, content: bytes) -> None:
    _write(path, content, 0o600)


def _write(path: Path, content: str | bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)  # whatever the umask is
        file.write(content.encode() if isinstance(content, str) else content)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_copy_file)
    else:
        _copy_file(source, target)


def _copy_file(source: str | Path, target: str | Path) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o600)
