"""Shell scripts, systemd units and compose files that start a federation's processes.

Each avoids a trap that was met. Flower's programs find each other by PATH, so a unit that calls one
by its path alone starts a node that is never online: ``trellis device start`` sets the PATH, and
the server's script does. SuperNodes end with code 0 where a SuperLink without a database restarts,
and with an error where they are started again soon after a ``kill -9``: whoever starts one
starts it again. The SuperLink always has a database.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .folder import Federation

NOT_CONFIGURED = 78  # EX_CONFIG: ended for a reason that starting again does not mend
DATABASE = "superlink.db"
FLOWER = "1.41.0"
_ROOT = "/opt/trellis"  # where the units expect environment and folders

_FIND = """\
# Where trellis is installed: TRELLIS_BIN, the environment that made this file, or the PATH.
BIN="${{TRELLIS_BIN:-{bin}}}"
[ -x "$BIN/trellis" ] || BIN="$(dirname "$(command -v trellis)")"
[ -x "$BIN/trellis" ] || {{ echo "trellis was not found: set TRELLIS_BIN" >&2; exit 78; }}
"""

_DEVICE = """\
#!/bin/sh
# Starts this device, and starts it again when it ends. Stop it with Ctrl-C or SIGTERM.
cd "$(dirname "$0")" || exit 1
{find}
child=
trap 'trap - INT TERM HUP; kill "$child" 2>/dev/null; wait "$child"; exit 0' INT TERM HUP
while :; do
    "$BIN/trellis" device start . "$@" &
    child=$!
    wait "$child"
    code=$?
    [ "$code" -eq {not_configured} ] && exit "$code"  # it said what to mend first
    echo "the device ended with code $code; it is started again in ${{TRELLIS_AGAIN:=15}} seconds"
    sleep "$TRELLIS_AGAIN" &
    child=$!
    wait "$child"
done
"""

_SERVER = """\
#!/bin/sh
# Starts the SuperLink. TRELLIS_BIND is the address it listens on.
cd "$(dirname "$0")" || exit 1
{find}
export PATH="$BIN:$PATH" FLWR_HOME="$PWD/flower"
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.5
umask 077
mkdir -p "$FLWR_HOME"
exec "$BIN/flower-superlink" --host "${{TRELLIS_BIND:-{bind}}}" --port {port} \\
    --database "${{TRELLIS_DATABASE:-{database}}}" {security}
"""

_UNIT = """\
# Put this into /etc/systemd/system, with the folder at {folder} and the
# environment at {root}/venv, or change the paths; then: systemctl enable --now {unit}
[Unit]
Description={what}
Wants=network-online.target
After=network-online.target

[Service]
User=trellis
ExecStart={command}
# A SuperNode also ends with code 0 where it should not, and with an error where the server still
# takes it for online: in both cases starting it again, after a while, is right.
Restart=always
RestartSec=15
RestartPreventExitStatus={not_configured}
UMask=0077
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ProtectHome=true
ReadWritePaths={writes}

[Install]
WantedBy=multi-user.target
"""

_COMPOSE = """\
# docker compose up --build --detach; TRELLIS_SOURCE is a clone of Trellis on this machine.
services:
  {service}:
    build:
      context: "${{TRELLIS_SOURCE:?set TRELLIS_SOURCE to a clone of Trellis}}"
      dockerfile_inline: |
        FROM flwr/{image}:{flower}
        COPY --chown=app:app . /tmp/source
        RUN python -m pip install --no-cache-dir /tmp/source
    entrypoint: {entrypoint}
    # As the owner of this folder: its private files are readable by nobody else.
    user: "${{TRELLIS_USER:-1000:1000}}"
    network_mode: host
    restart: always
    volumes:
{volumes}
"""
_HERE = "      - .:/trellis"


def _find() -> str:
    # Not resolved: in a virtual environment the interpreter is a link to elsewhere.
    return _FIND.format(bin=Path(sys.executable).parent)


def device_script() -> str:
    """Return a device's start.sh."""
    return _DEVICE.format(find=_find(), not_configured=NOT_CONFIGURED)


def server_script(federation: Federation) -> str:
    """Return the server's start.sh."""
    bind, security = "127.0.0.1", "--insecure"
    if federation.tls:
        bind = "0.0.0.0"
        security = (
            "--ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key "
            "--enable-supernode-auth"
        )
    return _SERVER.format(
        find=_find(), bind=bind, port=federation.port, database=DATABASE, security=security
    )


def device_unit(name: str, place: str = "") -> str:
    """Return the systemd unit of a device; ``place`` is where its folder is, if not its name."""
    folder = f"{_ROOT}/{place or name}"
    return _UNIT.format(
        folder=folder,
        writes=folder,
        root=_ROOT,
        unit=f"trellis-{name}",
        what=f"Trellis device {name}",
        command=f"{_ROOT}/venv/bin/trellis device start {folder}",
        not_configured=NOT_CONFIGURED,
    )


def server_unit(graph: str = "") -> str:
    """Return the systemd unit of the SuperLink.

    ``graph`` is the name of a server in a graph of them: its runs also write what is beside the
    folder of its SuperLink.
    """
    folder = f"{_ROOT}/{graph}/server" if graph else f"{_ROOT}/server"
    return _UNIT.format(
        folder=folder,
        writes=f"{_ROOT}/{graph}" if graph else folder,
        root=_ROOT,
        unit="trellis-server",
        what="Trellis SuperLink",
        command=f"/bin/sh {folder}/start.sh",
        not_configured=NOT_CONFIGURED,
    )


def device_compose(name: str, *mounts: str) -> str:
    """Return the compose file of a device; ``mounts`` are more folders that it needs."""
    entrypoint = '["trellis", "device", "start", "/trellis"]'
    return _COMPOSE.format(
        service=f"trellis-{name}",
        image="supernode",
        flower=FLOWER,
        entrypoint=entrypoint,
        volumes="\n".join([_HERE, *(f"      - {mount}" for mount in mounts)]),
    )


def server_compose(graph: str = "") -> str:
    """Return the compose file of the SuperLink; ``graph`` as in `server_unit`."""
    entrypoint, volumes = '["/bin/sh", "/trellis/start.sh"]', _HERE
    if graph:
        # At its own path: a run is told where on this machine its server's folder is.
        whole = f"${{TRELLIS_FOLDER:?set TRELLIS_FOLDER to the absolute path of {graph}}}"
        entrypoint = '["/bin/sh", "${TRELLIS_FOLDER}/server/start.sh"]'
        volumes = f'      - "{whole}:${{TRELLIS_FOLDER}}"'
    return _COMPOSE.format(
        service="trellis-server",
        image="superlink",
        flower=FLOWER,
        entrypoint=entrypoint,
        volumes=volumes,
    )
