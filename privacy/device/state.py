"""The folder in which a device keeps its secret, its ledger and its log.

The owner names it (``state-path`` in the node config). Where that is absent it is
``.NAME-trellis`` beside the data file NAME, and it remembers which file it belongs to: a file that
is renamed keeps its folder, and so its ledger. Where the device cannot tell (the file of another
folder is gone, and this one is new) it refuses until the owner names the folder. Not recognised: a
copy of the data while the original is still there, and a file moved to another directory; set
``state-path`` and it does not matter.

The ledger comes before the secret: a secret without a ledger means that a ledger was deleted, and
then nothing is released.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .codes import PrivacyRefused

LEDGER, SECRET, DATA, POLICY = "ledger.json", "secret", "data.json", "policy.json"
LEDGER_VERSION = 1
SECRET_BYTES = 32
_ONE_ENTRY = 4096  # bytes, more than an entry of the ledger has


def state_folder(data: Path) -> Path:
    """Return the state folder of a data file whose owner names none.

    Raises
    ------
    PrivacyRefused
        Where it cannot be told whose data this is, so that a budget might begin anew.
    """
    own = data.parent / f".{data.stem}-trellis"
    try:
        status = data.stat()
    except OSError:
        return own  # reading the data gives the error that names it
    identity = {"name": data.name, "device": status.st_dev, "inode": status.st_ino}
    known = _read(own)
    if known == identity:
        return own
    others = {folder: found for folder in _others(own) if (found := _read(folder))}
    gone = [f for f, found in others.items() if not (data.parent / str(found["name"])).exists()]
    for folder, found in others.items():
        renamed = folder in gone and _same(found, identity)
        if renamed or found["name"] == data.name:
            if known or (own / LEDGER).exists():
                raise PrivacyRefused(
                    f"both {own.name} and {folder.name} may hold the ledger of {data}, which was "
                    "renamed; name one with state-path"
                )
            _remember(folder, identity)
            return folder  # its ledger stays with it
    if known is None and not own.exists() and gone:
        raise PrivacyRefused(
            f"{data} is new, and the file of {gone[0].name} ({others[gone[0]]['name']!r}) is gone: "
            f"if this is the same data, set state-path={str(gone[0])!r}, else another folder"
        )
    if known and known["name"] != data.name and (data.parent / str(known["name"])).exists():
        raise PrivacyRefused(
            f"{own} belongs to {known['name']!r}; set state-path for {data.name!r}, so that the "
            "two do not share a ledger"
        )
    _remember(own, identity)
    return own


def check_writable(folder: Path | None) -> None:
    """Try whether as much as the ledger can be written once more, really and durably.

    Raises
    ------
    PrivacyRefused
        Where it cannot (a full disk, a read-only folder): what cannot be entered is not released.
    """
    if folder is None:
        raise PrivacyRefused("there is no folder for a ledger; set state-path in --node-config")
    with refusing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ledger = folder / LEDGER
        size = ledger.stat().st_size if ledger.is_file() else 0
        _partial(folder / "trial", bytes(size + _ONE_ENTRY)).unlink()


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a refusal that tells the owner what to do."""
    try:
        yield
    except PrivacyRefused:  # an OSError as well
        raise
    except OSError as error:
        raise PrivacyRefused(
            f"the state folder {folder} cannot be written ({error.strerror or error}), so no "
            "release can be entered and none is made; free the disk, or name a folder that this "
            "device may write with state-path"
        ) from error


def begin(folder: Path) -> None:
    """Make a state folder ready: an empty ledger first, then the secret.

    Raises
    ------
    PrivacyRefused
        Where there is a secret and no ledger, or nothing can be written.
    """
    ledger, secret = folder / LEDGER, folder / SECRET
    if secret.exists():
        if not ledger.exists():
            raise deleted(folder)
        return
    with refusing(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(ledger, json.dumps({"version": LEDGER_VERSION, "entries": {}}).encode())
        _make(secret, secrets.token_bytes(SECRET_BYTES))


def deleted(folder: Path) -> PrivacyRefused:
    """Return the refusal for a folder whose ledger is gone while its secret is there."""
    return PrivacyRefused(
        f"{folder / LEDGER} is gone, and {SECRET} beside it says that there was one: what was "
        "spent is not known, so nothing is released. Put the ledger back from a copy; only if no "
        f"release was ever sent, delete {SECRET} too"
    )


def keep_policy(folder: Path, config: Mapping[str, Any]) -> None:
    """Write down the policy in force, for the owner to see; it is never read to judge by."""
    content = json.dumps(config, indent=1, sort_keys=True).encode()
    path = folder / POLICY
    try:
        if not path.is_file() or path.read_bytes() != content:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(path, content)
    except OSError:
        pass  # whatever needs the folder says so


def kept_policy(folder: Path) -> dict[str, Any]:
    """Return the keys of the policy that was last in force; none where there was none."""
    try:
        found = json.loads((folder / POLICY).read_text())
    except FileNotFoundError:
        return {}
    return dict(found)


def write_private(path: Path, content: bytes) -> None:
    """Put a file in the place of another, durably, readable by its owner only."""
    partial = _partial(path, content)
    os.replace(partial, path)
    _sync(path.parent)


def _make(path: Path, content: bytes) -> None:
    """Make a file that is not there yet, whole or not at all; another process may be first."""
    partial = _partial(path, content)
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    finally:
        partial.unlink()
    _sync(path.parent)


def _partial(path: Path, content: bytes) -> Path:
    partial = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        # On a full disk what was begun must not take the rest of it.
        partial.unlink(missing_ok=True)
        raise
    return partial


def _sync(folder: Path) -> None:
    # A rename is only durable with its folder.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _others(own: Path) -> list[Path]:
    try:
        with os.scandir(own.parent) as found:
            names = [
                e.name for e in found if e.name.startswith(".") and e.name.endswith("-trellis")
            ]
    except OSError:
        return []
    return [own.parent / name for name in sorted(names) if name != own.name]


def _read(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / DATA).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "name" in found else None


def _same(known: dict[str, Any], identity: dict[str, Any]) -> bool:
    return all(known.get(key) == identity[key] for key in ("device", "inode"))


def _remember(folder: Path, identity: dict[str, Any]) -> None:
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        write_private(folder / DATA, json.dumps(identity).encode())
    except OSError:
        pass  # nothing can be kept here, so nothing can be released from here either
