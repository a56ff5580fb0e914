"""Make a federation's folder: every file in its place, private ones for their owner only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trellis.sim.flwr_command import connection_toml
from trellis.sim.run_config import Scalar

from . import scripts, texts
from .certificates import (
    Authority,
    Pair,
    make_authority,
    make_node_key,
    make_server,
    make_signing_key,
)
from .device import DEVICE
from .folder import DESCRIPTION, Federation, FederationError


@dataclass(frozen=True)
class InGraph:
    """What a federation takes from the graph of servers that it is part of.

    Attributes
    ----------
    authority : signs every SuperLink's certificate; None without TLS
    signing : the signing keys of all devices of the graph: each knows the public half of all
    nodes : what the node config of a device says besides, as its place among all
    fallback : other SuperLinks to which devices may go while their own is gone
    unit, compose : of the SuperLink: it also writes what is beside its folder
    page : the README.md of the whole
    """

    authority: Authority | None
    signing: Mapping[str, Pair]
    nodes: Mapping[str, Mapping[str, Scalar]]
    fallback: Sequence[str]
    unit: str
    compose: str
    page: str


def create(
    federation: Federation,
    *,
    hosts: Sequence[str] = (),
    data: Mapping[str, Path] | None = None,
    open_policy: bool = False,
    shared: InGraph | None = None,
) -> None:
    """Write everything into the federation's folder, which must be empty or not there.

    Parameters
    ----------
    federation : what to make
    hosts : names and addresses by which the SuperLink is reached, for its certificate
    data : a file or folder for each device, copied into its folder
    open_policy : let devices take part in runs without privacy, for trying out
    shared : of a federation in a graph: its authority, which then keeps no key in this folder, the
        devices' signing keys, and more of their node configs

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
    _server_and_operator(federation, hosts, shared)
    if shared is not None:
        signing = shared.signing
    else:
        signing = {name: make_signing_key() for name in federation.names}
    peers = texts.peers({name: pair.public for name, pair in signing.items()})
    nodes: Mapping[str, Mapping[str, Scalar]] = {} if shared is None else shared.nodes
    fallback = () if shared is None else shared.fallback
    for name in federation.names:
        place = federation.device(name)
        source = (data or {}).get(name)
        file = texts.data_name(source, name)
        private(place / "signing.key", signing[name].private)
        if federation.tls:
            node = make_node_key()
            private(place / "node.key", node.private)
            public(federation.public_key(name), node.public)
            shutil.copyfile(folder / "operator" / "ca.crt", place / "ca.crt")
        public(place / "peers.txt", peers)
        toml = texts.device_toml(federation, name, file, nodes.get(name, {}), fallback)
        public(place / DEVICE, toml)
        public(place / "policy.toml", texts.OPEN_POLICY if open_policy else texts.POLICY)
        script(place / "start.sh", scripts.device_script())
        public(place / f"trellis-{name}.service", scripts.device_unit(name))
        public(place / "compose.yaml", scripts.device_compose(name))
        public(place / "README.md", texts.device_page(federation, name, file))
        for part in ("data", "state"):
            (place / part).mkdir(mode=0o700)
        if source is not None:
            _copy(source, place / "data" / file)
    public(folder / "README.md", texts.top_page(federation) if shared is None else shared.page)
    # Last: a folder with a description is whole.
    public(folder / DESCRIPTION, federation.description())


def _server_and_operator(
    federation: Federation, hosts: Sequence[str], shared: InGraph | None
) -> None:
    folder = federation.folder
    server, operator = folder / "server", folder / "operator"
    for place in (server, operator):
        place.mkdir(mode=0o700)
    if federation.tls:
        authority = shared.authority if shared is not None else None
        if authority is None:
            authority = make_authority()
            private(folder / "ca" / "ca.key", authority.pair.private)
            public(folder / "ca" / "ca.crt", authority.pair.public)
        pair, own = authority.pair, make_server(authority, [federation.host, *hosts])
        private(server / "server.key", own.private)
        public(server / "server.crt", own.public)
        for place in (server, operator):
            public(place / "ca.crt", pair.public)
    script(server / "start.sh", scripts.server_script(federation))
    unit, compose = scripts.server_unit(), scripts.server_compose()
    if shared is not None:
        unit, compose = shared.unit, shared.compose
    public(server / "trellis-server.service", unit)
    public(server / "compose.yaml", compose)
    public(server / "README.md", texts.server_page(federation))
    public(operator / "config.toml", connection_toml(federation.address, federation.certificate))


def public(path: Path, content: str | bytes) -> None:
    """Write a file that anybody may read; it must not be there yet."""
    _write(path, content, 0o644)


def script(path: Path, content: str) -> None:
    """Write a file that anybody may run; it must not be there yet."""
    _write(path, content, 0o755)


def private(path: Path, content: bytes) -> None:
    """Write a file for its owner only; it must not be there yet."""
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
