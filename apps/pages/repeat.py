"""The last section of a report: the settings, the commands that repeat the run, and its files."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import quote

from trellis.apps.common.results import RunResult
from trellis.apps.common.tables import given_in_memory
from trellis.apps.pages.page import Block, Code, Heading, Link, Paragraph, Section, Table
from trellis.apps.pages.wording import size

_FILES = {
    "run.json": "what was run, where, how long, what was sent, the privacy ledger",
    "metrics.csv": "one row a round",
    "scores.csv": "held-out scores, one row a client",
    "clients.csv": "all clients, one a row",
    "result.npz": "the learned arrays",
    "report.html": "this report",
    "picture.svg": "its first picture",
}
_IN_MEMORY = (
    "The clients' data was given in Python and is not kept. Give trellis.run the same data again, "
    "or write one file per client into a folder of your own and name it in the place of the one "
    "that these commands name, which is gone."
)
_LINKED_FILES = 12  # a longer list of graphs is better seen in the folder itself


def command(result: RunResult) -> str:
    """Return the command line that repeats the run."""
    engine = "local" if result.engine == "local" else "flower"
    words = ["trellis", "run", result.study, "--seed", str(result.seed), "--engine", engine]
    if result.data:
        words += ["--data", result.data]
    for name, value in result.config.items():
        words += ["--set", f"{name}={_plain(value)}"]
    return _wrapped([shlex.quote(word) for word in words], "--set")


def flower_command(result: RunResult) -> str:
    """Return the ``flwr run`` command that repeats the run."""
    settings: dict[str, object] = {"study": result.study, "seed": result.seed}
    if result.data:
        settings["data"] = result.data
    settings |= {f"{result.study}.{name}": value for name, value in result.config.items()}
    # Run configs are TOML; for the values they can hold, JSON is written the same way.
    text = " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())
    clients = len(result.clients)
    if result.network:  # of a server its own clients; the settings have the number of all
        clients = max(clients, int(result.config.get("clients", 0)))
    nodes = f"num-supernodes={max(1, clients)} client-resources-num-cpus=1"
    return (
        f"flwr run . --stream --federation-config {shlex.quote(nodes)} \\\n"
        f"    --run-config {shlex.quote(text)}"
    )


def repeat_section(result: RunResult, folder: Path) -> Section:
    """Return the section on how to repeat the run whose files stand in ``folder``."""
    blocks: list[Block] = []
    if result.data and given_in_memory(result.data):
        blocks.append(Paragraph(_IN_MEMORY))
    blocks += [
        Paragraph("One seed, one result. The command that repeats this run:"),
        Code(command(result)),
        Paragraph("The same in Flower's own simulation runtime, from the folder of the app:"),
        Code(flower_command(result)),
    ]
    if result.engine == "deployment":
        blocks.append(
            Paragraph(
                "This run was made on real devices. Their noise comes from the operating system "
                "and their data stays with them, so these commands repeat the settings, not the "
                "numbers."
            )
        )
    if result.network:
        blocks.append(
            Paragraph(
                "Here every server had a SuperLink of its own; these commands have all servers in "
                "one process. docs/how-to/graph-of-servers.md has the commands for servers "
                "that are apart."
            )
        )
    settings = [[name, _plain(value)] for name, value in result.config.items()]
    versions = [[name, value] for name, value in result.versions.items()]
    blocks += [
        Table(["setting", "value"], [["seed", str(result.seed)], *settings], "Settings."),
        Table(["software", "version"], versions, "Versions that can change a number."),
        Heading("Files beside this report"),
        Table(["file", "holds"], _files(folder)),
    ]
    if result.arrays:
        rows = [
            [name, " x ".join(str(n) for n in array.shape) or "one number", str(array.dtype)]
            for name, array in result.arrays.items()
        ]
        caption = "Arrays in result.npz; read them with numpy.load."
        blocks.append(Table(["array", "shape", "type"], rows, caption))
    return Section("How to repeat it", blocks)


def _files(folder: Path) -> list[list[object]]:
    # The report is on the list before it is written: a second writing must give the same bytes.
    rows: list[list[object]] = [
        [Link(name, name), text]
        for name, text in _FILES.items()
        if name == "report.html" or (folder / name).is_file()
    ]
    graphs = sorted(path for path in (folder / "graphs").glob("*") if path.is_file())
    for path in graphs[:_LINKED_FILES]:
        name = f"graphs/{path.name}"
        rows.append([Link(name, quote(name)), f"{path.suffix[1:]}, {size(path.stat().st_size)}"])
    if len(graphs) > _LINKED_FILES:
        rows.append([Link("graphs/", "graphs/"), f"{len(graphs) - _LINKED_FILES:,} more files"])
    return rows


def _plain(value: object) -> str:
    """Return a setting as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrapped(words: list[str], flag: str) -> str:
    """Return the command over several lines, one ``flag`` a line."""
    line = " ".join(words)
    return line.replace(f" {flag} ", f" \\\n    {flag} ")
