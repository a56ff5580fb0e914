"""``trellis device start``: everything between a device's folder and its running SuperNode."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.apps.command.saying import say

if TYPE_CHECKING:
    from rich.console import Console

    from trellis.sim.federation.device import Device

_PATIENCE = 3.0  # seconds between two looks for a server that nobody answers for
_SHORT = 3.0  # seconds to wait for an answer, where somebody looks every few seconds
_MOVING = {
    "connects": "connects to {}",
    "moved": "moved to {}",
    "ended": "left {}",
    "waits": "waits for {}",
}


def add(parts: Any) -> None:
    """Describe the subcommand."""
    start = parts.add_parser("start", help="start this device and stay connected to its server")
    start.add_argument("folder", type=Path, help="the device's folder, with its device.toml")
    start.add_argument(
        "--superlink",
        metavar="HOST:PORT",
        help="another address than device.toml says; its fallbacks are not used then",
    )
    start.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Look whether the device can work at all, wait for its server, become its SuperNode.

    With fallbacks it does not become the SuperNode but stays, and moves it where it should be.
    """
    from trellis.apps.command.deploy.check import before_start
    from trellis.sim.federation.device import Device
    from trellis.sim.federation.folder import FederationError
    from trellis.sim.federation.scripts import NOT_CONFIGURED
    from trellis.sim.processes import flower_environment

    try:
        device = Device.load(options.folder)
    except FederationError as error:
        say(console, f"error: {error}")
        return NOT_CONFIGURED
    if options.superlink and options.superlink != device.superlink:
        # Somebody rehearses, or goes another way: what is written for the real one does not hold.
        device = replace(device, superlink=options.superlink, fallback=())
    bad = [finding for finding in before_start(device) if not finding.ok]
    for finding in bad:
        say(console, f"{finding.what}: {finding.words}")
    if bad:
        return NOT_CONFIGURED
    if device.fallback:
        return _stay(device, console)
    if not _server_is_right(device.superlink, device.root_certificates, console):
        return 1
    arguments = device.arguments()
    say(console, f"{device.name}: connects to {device.superlink}")
    sys.stdout.flush()
    command = [sys.executable, "-m", "trellis.sim.supernode", *arguments]
    # In place of this process: whoever stops or watches it has the SuperNode itself.
    os.execve(sys.executable, command, flower_environment(device.home))


def _stay(device: Device, console: Console) -> int:
    """Look after the device's SuperNode, at its own SuperLink or at a fallback; return the code."""
    from trellis.privacy.device import log
    from trellis.sim.federation.folder import FederationError
    from trellis.sim.federation.moving import Moving
    from trellis.sim.reach import Reach, reach

    def ask(address: str) -> Reach:
        return reach(address, device.root_certificates, _SHORT)

    def tell(what: str, address: str, why: str) -> None:
        say(console, f"{device.name}: {_MOVING[what].format(address)}{why and f' ({why})'}")
        sys.stdout.flush()
        if what != "connects":
            log.note(folder, what, address=address, reason=why)

    home = ask(device.superlink)
    if not home.ok:
        wrong = home.there and not any(ask(address).ok for address in device.fallback)
        say(console, f"server: {home.words}{'' if wrong else '; waiting for it'}")
        if wrong:
            return 1
    folder = _state_folder(device)
    try:
        return Moving(device, ask, tell).run()
    except FederationError as error:
        say(console, f"error: {error}")
        return 1


def _state_folder(device: Device) -> Path | None:
    """Return where the device's log is; None where that cannot be told, as its programs find."""
    from trellis.privacy.device.codes import PrivacyRefused
    from trellis.privacy.device.policy_file import whole_config
    from trellis.privacy.device.state import state_folder

    config = whole_config(device.node)
    if given := config.get("state-path"):
        return Path(str(given))
    try:
        return state_folder(Path(str(config["data-path"])))
    except (KeyError, PrivacyRefused):
        return None


def _server_is_right(address: str, root_certificates: Path | None, console: Console) -> bool:
    """Wait until somebody answers; return whether it is the server, in the way it should be."""
    from trellis.sim.reach import reach

    told = False
    while not (found := reach(address, root_certificates)).ok:
        if found.there:
            say(console, f"server: {found.words}")
            return False
        if not told:
            say(console, f"server: {found.words}; waiting for it")
            told = True
        time.sleep(_PATIENCE)
    return True
