"""What a federation's folders say to the people who get them: settings with comments, pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from trellis.sim.run_config import Scalar, toml

from .folder import Federation

POLICY = """\
# What the owner of this device allows, whatever a server asks. What is not named here is denied.
# After a change: trellis device policy policy.toml says it in words, and the device is started
# again. All keys: trellis device policy --example FILE.

# The most that may ever be released about this data, over all runs, counted at this delta, and the
# most that one run may add to it.
max-epsilon = 10.0
run-epsilon = 1.0
delta = 1e-5
privacy = ["dp"]

# Runs this device takes part in; left out, any.
# studies = ["consensus-graph", "joint-precision"]

# Whether updates may be sent that are neither masked nor counted; whether labels may be told.
clear-updates = false
share-labels = false

# Secure sums: the fewest clients, and whose noise this device counts on beside its own.
fewest-clients = 3
count-noise-of = "signed"

# What one message may cost: any whole number among a run's settings, its size, its seconds.
most-steps = 100000
most-megabytes = 200
most-seconds = 600
"""

OPEN_POLICY = """\
# What the owner of this device allows. As it stands: everything, also runs without any privacy.
# That is for trying out, with data that is nobody's secret. trellis device policy --example FILE
# writes a policy that protects.
privacy = ["none", "paper", "dp"]
clear-updates = true
share-labels = true
"""


def device_toml(
    federation: Federation,
    name: str,
    data: str,
    more: Mapping[str, Scalar],
    fallback: Sequence[str] = (),
) -> str:
    """Return a device's device.toml.

    ``more`` replaces and adds to its node config; ``fallback`` are other SuperLinks that it may use
    while its own is gone.
    """
    tls = 'root-certificates = "ca.crt"\nauth-key = "node.key"\n' if federation.tls else ""
    others = f"fallback = {json.dumps(list(fallback))}\n" if fallback else ""
    node = bare(
        {
            "name": name,
            "data-path": f"data/{data}",
            "state-path": "state",
            "policy": "policy.toml",
            "signing-key": "signing.key",
            "trusted-keys": "peers.txt",
            "partition-id": federation.names.index(name),
            "num-partitions": len(federation.names),
            **more,
        }
    )
    return f"""\
# This device, for trellis device start and trellis deploy check. Paths may be relative to here.
{bare({"name": name, "superlink": federation.address})}{tls}{others}
# The SuperNode's own port, on loopback only. 0 takes a free one, so that two devices on a machine
# do not take each other's.
port = 0

# What the file is for and which columns it must have: trellis deploy check compares.
# study = "consensus-graph"
# columns = ["first", "second"]

# Other SuperLinks that this device may use while its own is gone, in this order, and after how many
# seconds without an answer. Nobody but you names one; it has to know this device's key.
# fallback = ["other.example.org:8443"]
# fallback-after = 30

# What this device tells its own programs; the server does not see it. Studies with several servers
# or clusters also take server = 0 and cluster = 0.
[node]
{node}"""


def device_page(federation: Federation, name: str, data: str) -> str:
    """Return a device's README.md."""
    secrets = "`node.key` and `signing.key` are" if federation.tls else "`signing.key` is"
    return f"""\
# {name}: a device of a Trellis federation

Everything this device needs is in this folder. {secrets} private: the folder goes to the owner
of {name} by a way that nobody else reads, and to nobody else.

1. Install Trellis in an environment of its own: `pip install .` in a clone, or
   `pip install trellis-VERSION-py3-none-any.whl`.
2. Put the data where `device.toml` says: `data/{data}`; for another place or kind of file change
   `data-path`.
3. Read `policy.toml`, change what you like, and have it said back:
   `trellis device policy policy.toml`.
4. Look whether all is well: `trellis deploy check .`
5. Start it, in one of these ways:
   - `./start.sh` in a terminal;
   - `trellis-{name}.service` with systemd, see the comment in it;
   - `TRELLIS_SOURCE=/path/of/the/clone docker compose up --build --detach`.

This device opens no port to the network; it connects to {federation.address} and nowhere else,
unless you name other servers in `device.toml`, as `fallback`.

What happened, what was spent, what was learned: `trellis device log state`,
`trellis device ledger state`, `trellis device result state`. Back up `state/` as a whole: without
`ledger.json` nothing more is released, and with an old copy the budget would be counted wrong.
"""


def server_page(federation: Federation) -> str:
    """Return the server's README.md."""
    return f"""\
# The SuperLink of a Trellis federation

1. Install Trellis on this machine, in an environment of its own: `pip install .` in a clone, or
   `pip install trellis-VERSION-py3-none-any.whl`.
2. Open port {federation.port} (TCP) to the devices and the operator, and to nobody else: Flower
   has no accounts of its own, so whoever reaches this port may submit runs.
3. Start it: `./start.sh`, or `trellis-server.service` with systemd, or
   `TRELLIS_SOURCE=/path/of/the/clone docker compose up --build --detach`.

Results are written on this machine, by the runs, into the folder that a run names. `superlink.db`
holds the devices' registrations and the runs; stop the SuperLink before you copy it.
"""


def top_page(federation: Federation) -> str:
    """Return the README.md of the whole folder."""
    folder, first = federation.folder, federation.names[0]
    register = ""
    if federation.tls:
        register = f"""\
4. Tell the SuperLink the devices' keys, each by its name: `trellis deploy register {folder}`.
"""
    number = 5 if federation.tls else 4
    kind = "TLS, authenticated devices" if federation.tls else "no TLS: for this machine only"
    authority = (
        "| `ca/` | nobody: the authority's private key; keep it off every machine |\n"
        if federation.tls
        else ""
    )
    return f"""\
# A Trellis federation

{len(federation.names)} devices ({", ".join(federation.names)}); SuperLink at
{federation.address}; {kind}.

| folder | for |
|---|---|
| `server/` | the machine of the SuperLink |
| `devices/NAME/` | the owner of that device, and nobody else |
| `operator/` | who submits runs: Flower's `config.toml`, the devices' public keys |
{authority}
## On this machine, as a rehearsal

    trellis deploy up {folder}
    trellis deploy status {folder}
    trellis deploy run {folder} consensus-graph
    trellis deploy down {folder}

## For real

1. Copy `server/` to the machine of the SuperLink and follow its README.
2. Give each owner `devices/NAME/`, and delete it here once they have it. An owner who wants a key
   that nobody else ever held makes it on the device
   (`ssh-keygen -t ecdsa -b 384 -N "" -f node.key`,
   `ssh-keygen -t ed25519 -N "" -f signing.key`)
   and sends the public halves, for `operator/keys/` and for everybody's `peers.txt`.
3. Owners compare their `peers.txt` by a way in which the operator has no hand: it is what keeps a
   server from inventing devices in a secure sum.
{register}{number}. Each owner follows `devices/NAME/README.md`, as `devices/{first}/README.md`.
{number + 1}. Submit, and follow to the true end:
   `trellis deploy run {folder} STUDY --set KEY=VALUE`.
"""


def peers(keys: dict[str, bytes]) -> str:
    """Return the table of the devices' signing keys."""
    lines = "".join(f"{name} {key.decode().strip()}\n" for name, key in keys.items())
    return (
        "# Whose keys this device believes in secure sums: a name and a public key per line.\n"
        + lines
    )


def bare(settings: Mapping[str, Scalar]) -> str:
    """Return settings as TOML for people: keys as they are typed, without quotes."""
    return "".join(
        f"{key} = {toml({'x': value}).partition(' = ')[2]}" for key, value in settings.items()
    )


def data_name(data: Path | None, name: str) -> str:
    """Return the name of a device's file in its ``data/``."""
    return f"{name}.csv" if data is None else data.name
