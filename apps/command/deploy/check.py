"""What ``trellis deploy check`` looks at before a device joins, each finding in words.

Nothing is sent but one request to the server's health page, and nothing is changed: what a check
has to write it removes again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.sim.federation.device import Device

_LEAST_FREE = 100e6  # bytes on the disk of the state folder
# Seconds by which our clock may be ahead of the server's, or behind: Flower refuses a device's
# signature beyond that.
_AHEAD, _BEHIND = 5.0, 300.0
_FLOWER = ((1, 41), (1, 43))


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what, whether it is well, and in words what was found.

    Where ``warning`` is set the device can join, and its owner should know.
    """

    what: str
    ok: bool
    words: str
    warning: bool = False


def findings(device: Device) -> Iterator[Finding]:
    """Yield everything that can be said of a device before it joins."""
    yield from before_start(device)
    if "bridge" in device.node:
        yield _spool(device)
    else:
        yield _data(device)
        yield from _policy(device)
        yield _signing(device)
    yield from _server(device)
    yield from _fallbacks(device)
    yield _versions()


def before_start(device: Device) -> Iterator[Finding]:
    """Yield what is cheap to look at, and without which starting makes no sense."""
    from trellis.privacy.device.policy_file import PolicyError, whole_config

    try:
        config = whole_config(device.node)
        yield Finding("node config", True, f"{len(device.node)} keys, all known")
    except PolicyError as error:
        config = dict(device.node)
        yield Finding("node config", False, str(error))
    yield _keys(device, config)
    yield _state(config)


def _keys(device: Device, config: Mapping[str, Any]) -> Finding:
    """Look for files that are named and not there, and for private ones that others can read."""
    problems = []
    private = [device.auth_key, config.get("signing-key")]
    public = [device.root_certificates, config.get("trusted-keys")]
    for path in (Path(str(given)) for given in (*private, *public) if given):
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif not os.access(path, os.R_OK):
            problems.append(f"{path} cannot be read")
        elif str(path) in map(str, private) and path.stat().st_mode & 0o077:
            problems.append(f"{path} is readable by others: chmod 600")
    if device.auth_key is not None and device.root_certificates is None:
        problems.append("auth-key needs root-certificates: Flower authenticates over TLS only")
    return Finding("keys", not problems, "; ".join(problems) or "in place, private ones private")


def _state(config: Mapping[str, Any]) -> Finding:
    """Look whether the ledger can be written: what cannot be entered is not released."""
    given = config.get("state-path")
    if "bridge" in config:
        return Finding("state folder", True, "a bridge has none")
    if not given:
        return Finding("state folder", True, "beside the data; name it with state-path")
    folder = Path(str(given))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / f".probe-{secrets.token_hex(6)}"
        probe.write_bytes(b"x")
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        words = f"{folder} cannot be written ({error.strerror}); nothing could be released"
        return Finding("state folder", False, words)
    words = f"{folder}, {free / 1e6:,.0f} MB free"
    if free < _LEAST_FREE:
        return Finding("state folder", False, f"{words}; {_LEAST_FREE / 1e6:.0f} MB are needed")
    return Finding("state folder", True, words)


def _data(device: Device) -> Finding:
    from trellis.apps.common.settings import ConfigError
    from trellis.apps.common.tables import DataError

    given = device.node.get("data-path")
    if not given:
        return Finding("data", False, "device.toml names none: set data-path in [node]")
    path = Path(str(given))
    if not path.exists():
        return Finding("data", False, f"{path} is not there")
    try:
        columns, count = _read(device.study, path)
    except (DataError, ConfigError, OSError, ImportError) as error:
        return Finding("data", False, str(error))
    wanted = [name for name in device.columns if name != "y" or "y" in columns]
    if wanted and (wrong := _difference(wanted, columns)):
        return Finding("data", False, f"{path}: {wrong}")
    study = f" for {device.study}" if device.study else ""
    return Finding("data", True, f"{path}: {count} records of {len(columns)} columns{study}")


def _spool(device: Device) -> Finding:
    """Look whether a bridge can read the letters of its server."""
    path = Path(str(device.node.get("spool", "")))
    if not path.is_absolute():
        return Finding("letters", False, "device.toml names no folder: set spool in [node]")
    try:
        count = len(list(path.iterdir()))
    except OSError as error:
        return Finding("letters", False, f"{path} cannot be read ({error.strerror})")
    return Finding("letters", True, f"{path}, of {count} runs; this is a bridge, without data")


def _read(study: str, path: Path) -> tuple[list[str], int]:
    """Return the columns of a device's data and the number of its records, as its study reads it.

    Strictly, also where a private run would not mind: the owner can still mend the file.
    """
    from trellis import apps
    from trellis.apps.common.node import Node
    from trellis.apps.common.settings import config_class
    from trellis.apps.common.tables import read_table

    if not study:
        if path.is_dir():
            return [], len(list(path.iterdir()))
        table = read_table(path)
        return list(table.columns), len(table.values)
    module = apps.study_module(study, "data")
    config, node = config_class(study)(), Node(path.stem, 0, path, None, False)
    if hasattr(module, "client_graphs"):
        graphs = module.client_graphs(config, 1, node)
        return list(module.variables(config, graphs)), len(graphs)
    table = module.client_table(config, 1, node)
    values = table.values if hasattr(table, "values") else table.X
    return list(table.columns), len(values)


def _difference(wanted: list[str], columns: list[str]) -> str:
    if missing := [name for name in wanted if name not in columns]:
        return f"the column {missing[0]!r} is missing; there are {', '.join(columns[:8])}"
    if strange := [name for name in columns if name not in wanted]:
        return f"the column {strange[0]!r} is not among those declared in device.toml"
    if wanted != columns:
        first = next(i for i, (a, b) in enumerate(zip(wanted, columns, strict=True)) if a != b)
        return (
            f"column {first + 1} is {columns[first]!r} where {wanted[first]!r} is declared: all "
            "clients need the same columns in the same order"
        )
    return ""


def _policy(device: Device) -> Iterator[Finding]:
    from trellis.apps.command.device.policy import in_words
    from trellis.privacy.device.policy_file import PolicyError, whole_config

    try:
        lines = in_words(whole_config(device.node))
    except PolicyError as error:
        yield Finding("policy", False, str(error))
        return
    for line in lines:
        yield Finding("policy", True, line)


def _signing(device: Device) -> Finding:
    """Look whether the others will know this device: its own key must be in its own table."""
    from trellis.privacy.device.policy_file import PolicyError, whole_config
    from trellis.privacy.secagg.signing import load_signing_key, load_trusted_keys

    try:
        config = whole_config(device.node)
        key, table = config.get("signing-key"), config.get("trusted-keys")
        if not key or not table:
            return Finding(
                "signed keys", True, "none: in secure sums this device counts on nobody's noise"
            )
        own = load_signing_key(str(key)).public_key()
        known = load_trusted_keys(str(table))
    except PolicyError as error:
        return Finding("signed keys", False, str(error))
    except (OSError, ValueError) as error:
        return Finding("signed keys", False, str(error))
    name = str(config.get("name", Path(str(config.get("data-path", ""))).stem))
    if known.get(name) != own:
        words = f"{table} does not list this device's key under its name {name!r}"
        return Finding("signed keys", False, words)
    return Finding("signed keys", True, f"{len(known)} devices are known, this one as {name!r}")


def _server(device: Device) -> Iterator[Finding]:
    from trellis.sim.reach import reach

    found = reach(device.superlink, device.root_certificates)
    yield Finding("server", found.ok, found.words)
    if found.clock is None:
        return
    words = "as the server's"
    if abs(found.clock) > 2.0:
        words = (
            f"{abs(found.clock):.0f} s {'behind' if found.clock > 0 else 'ahead of'} the server's"
        )
    good = -_AHEAD <= found.clock <= _BEHIND
    if not good:
        words += "; set it, for instance by NTP: the server would refuse this device's signature"
    yield Finding("clock", good, words)


def _fallbacks(device: Device) -> Iterator[Finding]:
    """Look at the SuperLinks for the time in which the own one is gone; none needs to be there."""
    from trellis.sim.reach import reach

    for place, address in enumerate(device.fallback, start=1):
        found = reach(address, device.root_certificates)
        words = found.words if found.ok else f"{found.words}; this device could not go there now"
        yield Finding(f"fallback {place}", True, words, warning=not found.ok)


def _versions() -> Finding:
    problems = []
    python = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 13):
        problems.append("Python must be 3.11 or 3.12")
    found = {"python": python}
    for package in ("trellis", "flwr", "numpy", "scipy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
            problems.append(f"{package} is not installed")
    flower = tuple(int(part) for part in found["flwr"].split(".")[:2] if part.isdecimal())
    if not _FLOWER[0] <= flower < _FLOWER[1]:
        problems.append("flwr must be 1.41 or 1.42")
    if shutil.which("flower-superexec", path=str(Path(sys.executable).parent)) is None:
        problems.append("flower-superexec is not beside this Python: install flwr with it")
    words = ", ".join(f"{name} {number}" for name, number in found.items())
    return Finding("versions", not problems, "; ".join([words, *problems]))
