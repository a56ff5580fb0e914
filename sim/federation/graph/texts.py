"""What the folders of a graph say to the people who get them."""

from __future__ import annotations

from trellis.sim.federation.texts import bare

from .folder import OWN, SPOOL, ServerGraph, bridge_name


def bridge_toml(graph: ServerGraph, name: str, neighbour: str) -> str:
    """Return the device.toml of a bridge."""
    tls = 'root-certificates = "ca.crt"\nauth-key = "node.key"\n' if graph.tls else ""
    address = graph.addresses[graph.number(neighbour)]
    node = bare({"bridge": graph.number(name), "spool": f"../../{OWN}/{SPOOL}"})
    return f"""\
# This bridge, for trellis device start and trellis deploy check. Paths may be relative to here.
{bare({"name": bridge_name(name), "superlink": address})}{tls}
# The SuperNode's own port, on loopback only; 0 takes a free one.
port = 0

# Whose letters it hands over, and where that server leaves them. It has no data.
[node]
{node}"""


def bridge_page(graph: ServerGraph, name: str, neighbour: str) -> str:
    """Return a bridge's README.md."""
    address = graph.addresses[graph.number(neighbour)]
    unit = f"trellis-bridge-{name}-to-{neighbour}.service"
    return f"""\
# The bridge from {name} to {neighbour}

It runs on the machine of {name}, connects to the SuperLink of {neighbour} at {address}, and
hands it the letters that {name} leaves in `../../{OWN}/{SPOOL}`. It opens no port to the network.

1. Look whether all is well: `trellis deploy check .`
2. Start it, in one of these ways:
   - `./start.sh` in a terminal;
   - `{unit}` with systemd, see the comment in it;
   - `TRELLIS_SOURCE=/path/of/the/clone docker compose up --build --detach`.

Where {neighbour} cannot be reached it waits, and where it ends it is started again.
"""


def server_page(graph: ServerGraph, name: str) -> str:
    """Return the README.md of the folder for one server's machine."""
    number = graph.number(name)
    neighbours = graph.neighbours(name)
    federation = graph.addresses[number]
    register = ""
    if graph.tls:
        register = """\
4. Tell the SuperLink the keys of this server's devices and of the neighbours' bridges, each by its
   name: `trellis deploy register .`
"""
    step = 5 if graph.tls else 4
    bridges = "\n".join(
        f"   - `bridges/{other}/start.sh`, which connects to {graph.addresses[graph.number(other)]}"
        for other in neighbours
    )
    return f"""\
# {name}: server {number} of {len(graph.names)} in a Trellis graph of servers

Its neighbours are {", ".join(neighbours)}. This folder is for the machine of {name}:

| folder | for |
|---|---|
| `server/` | the SuperLink, at {federation} |
| `{OWN}/` | the server's own: `identity.key`, with which it signs its letters, and `{SPOOL}/` |
| `bridges/NEIGHBOUR/` | a SuperNode of this machine at each neighbour's SuperLink |
| `operator/` | who submits runs here: Flower's `config.toml`, public keys |
| `devices/NAME/` | the owner of that device, and nobody else; delete it here once they have it |

1. Copy this folder to the machine, as `/opt/trellis/{name}` for the systemd units, and install
   Trellis there, in an environment of its own: `pip install .` in a clone, or
   `pip install trellis-VERSION-py3-none-any.whl`.
2. Open the SuperLink's port to this server's devices and to the machines of
   {", ".join(neighbours)}, and to nobody else: whoever reaches it may submit runs.
3. Start the SuperLink: `server/start.sh`, or see `server/README.md`. In a container give it
   `TRELLIS_FOLDER`, the absolute path of this folder: runs write beside `server/`.
{register}{step}. Start the bridges, in any order; each waits until its neighbour answers:
{bridges}
{step + 1}. Each owner of a device follows `devices/NAME/README.md`.
{step + 2}. Look who is online: `trellis deploy status .`
{step + 3}. Submit the run, on every server's machine, with one name that all of them use and that
   is new for every run:
   `trellis deploy run . STUDY --graph-run NAME`
   The settings must be the same everywhere.

After this machine was down: start SuperLink, bridges and devices again, then
`trellis deploy run . STUDY --resume runs/STUDY-N`. The name of the run is in that folder.
"""


def graph_page(graph: ServerGraph) -> str:
    """Return the README.md of the whole folder."""
    folder, first = graph.folder, graph.names[0]
    kind = "TLS, authenticated nodes" if graph.tls else "no TLS: for this machine only"
    authority = (
        "| `ca/` | nobody: the authority's private key; keep it off every machine |\n"
        if graph.tls
        else ""
    )
    rows = "".join(
        f"| {name} | {graph.addresses[number]} | {graph.counts[number]} | "
        f"{', '.join(graph.neighbours(name))} |\n"
        for number, name in enumerate(graph.names)
    )
    return f"""\
# A Trellis graph of servers

{len(graph.names)} servers ({graph.topology}), {graph.clients} clients; {kind}.

| server | SuperLink | clients | neighbours |
|---|---|---|---|
{rows}
| folder | for |
|---|---|
| `servers/NAME/` | the machine of that server, and nobody else |
{authority}
## On this machine, as a rehearsal

    trellis deploy up {folder}
    trellis deploy status {folder}
    trellis deploy run {folder} server-graph
    trellis deploy down {folder}

One server may be stopped and started by itself, to see what the others do:
`trellis deploy down {folder} --only {first}`, then `trellis deploy up {folder} --only {first}`.

## For real

Copy each `servers/NAME/` to its machine by a way that nobody else reads, delete it here, and follow
the README.md in it. Whoever runs a server compares `{OWN}/servers.txt` with the others: it is what
keeps one from speaking in another's name.
"""
