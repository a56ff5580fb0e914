"""``trellis device start``: everything between a device's folder and its running SuperNode."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apps.command.saying import say

if TYPE_CHECKING:
    from rich.console import Console

_PATIENCE = 3.0  # seconds between two looks for a server that nobody answers for


def add(parts: Any) -> None:
    """Describe the subcommand."""
    start = parts.add_parser("start", help="start this device and stay connected to its server")
    start.add_argument("folder", type=Path, help="the device's folder, with its device.toml")
    start.add_argument(
        "--superlink", metavar="HOST:PORT", help="another address than device.toml says"
    )
    start.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Look whether the device can work at all, wait for its server, become its SuperNode."""
    from apps.command.deploy.check import before_start
    from sim.federation.device import Device
    from sim.federation.folder import FederationError
    from sim.federation.scripts import NOT_CONFIGURED
    from sim.processes import flower_environment

    try:
        device = Device.load(options.folder)
    except FederationError as error:
        say(console, f"error: {error}")
        return NOT_CONFIGURED
    if options.superlink:
        device = replace(device, superlink=options.superlink)
    bad = [finding for finding in before_start(device) if not finding.ok]
    for finding in bad:
        say(console, f"{finding.what}: {finding.words}")
    if bad:
        return NOT_CONFIGURED
    if not _server_is_right(device.superlink, device.root_certificates, console):
        return 1
    arguments = device.arguments()
    say(console, f"{device.name}: connects to {device.superlink}")
    sys.stdout.flush()
    command = [sys.executable, "-m", "sim.supernode", *arguments]
    # In place of this process: whoever stops or watches it has the SuperNode itself.
    os.execve(sys.executable, command, flower_environment(device.home))


def _server_is_right(address: str, root_certificates: Path | None, console: Console) -> bool:
    """Wait until somebody answers; return whether it is the server, in the way it should be."""
    from sim.reach import reach

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
