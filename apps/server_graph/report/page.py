"""What the server-graph study shows of a run: models, the servers' graph, methods side by side.

Reads ``models`` (P, M), ``centroid`` (M,), ``combination`` (P, P), ``homes`` (K,), ``alive`` (P,),
where it is known ``truth`` (M,), and the rounds' ``msd``, ``msd-servers``, ``epsilon-paper`` and
``epsilon-corrected``. Homes and who is alive are those of the last round. Where servers are apart, the
models of some are unknown, their rows nan: what rests on those is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.files.spreadsheet import csv_text
from trellis.apps.common.own_data.scaling import parameter_names
from trellis.apps.common.results import RunResult, write_atomically
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import listed, shown, table_of
from trellis.apps.pages.graphs import write_graphml
from trellis.apps.pages.network import known_servers, network_sections
from trellis.apps.pages.report import (
    Block,
    Code,
    Facts,
    FigureBlock,
    Notice,
    Paragraph,
    Section,
    Table,
    number,
)
from trellis.apps.pages.server_map import server_map
from trellis.strategies.server_graph.failures import Outage, parse_failures
from trellis.strategies.topology.files import SUFFIXES
from trellis.strategies.topology.graph import Topology

from ..config import DEFAULT_SIGMA, ServerGraphConfig
from ..methods import NEIGHBOUR_LEARNS
from ..problem import msd
from ..release import WORRYING
from ..simulate import Simulation, cost, simulate
from ..truth import steady_state
from .sums import SUMS, private_section
from .words import WORDING

Array = NDArray[np.float64]

SIDE_BY_SIDE = ("none", "hybrid", "iid", "masked")
# What the methods side by side may take, by a count of their operations: a clock would make two
# reports of one run differ. Seconds, measured with 50 to 1,000 clients and 10 to 50 servers.
MOST_SECONDS = 0.6
_CLIENT, _NUMBER = 4e-4, 1e-6  # its data and the true model of all methods; a number in it
_UPDATE, _LETTER, _KEY = 15e-6, 1e-5, 2.3e-4  # of a client, of an edge, of a masked edge once
FEWEST_ROUNDS = 20
_TOO_LARGE = "Left out: with so many clients or servers it would take longer than the report. To "
_TOO_LARGE += "compare, run the methods one by one, then"
_COMPARED = "trellis compare DIR DIR ..."
_MARKS = 6
_METHODS = {
    "none": "Servers told each other their models as they are (method none).",
    "hybrid": "Servers added graph-homomorphic noise to what they told each other, the paper's "
    "(method hybrid): it cancels in the mean of all servers' models, not in a single one.",
    "iid": "Servers added independent noise on every edge (method iid), which cancels nowhere.",
    "masked": "Servers masked what they told each other (method masked): every model is as without "
    "privacy, but where a server has one neighbour only, and noise stays on its edge.",
    "fedavg": "One server had all clients (method fedavg): there is no graph.",
}
_TOGETHER = "Simulated: this is what servers on machines of their own would spend."
_APART = "Each server has a SuperLink of its own: this is what one tells all the others."
THREATS = {
    "hybrid": "The adversary is a server that follows the protocol and looks at what it gets. It "
    "sees psi_m + g_m, the same from m in all directions, so comparing with others gains it "
    "nothing. It must not learn w_m: the noise is taken back there, and with w_m, the weights and "
    "what m's other neighbours sent, psi_m follows exactly. Every client of m is sent w_m. A "
    "server's own model stays noisy, and where the loss is no quadratic so does the mean, by a "
    "power that grows as sigma^4.",
    "masked": "The adversary is the same. It sees words that are uniform noise one by one, and "
    "learns the weighted sum of its neighbours' models, which is what it computes anyway. All its "
    "neighbours but one, together with it, learn the model of that one; a server with one "
    "neighbour would learn that one's model, so noise stays on such an edge. It is no differential "
    "privacy: what sums and models tell over many rounds is not bounded, and no epsilon is "
    "claimed. A server that stops after others have masked costs the round.",
}


def _sums(result: RunResult) -> bool:
    """Return whether noise went into the servers' secure sums."""
    return any("epsilon" in row for row in result.metrics)


def sections(result: RunResult) -> list[Section]:
    """Return the study's part of the report; see `trellis.apps.pages.report.write_report`."""
    if "models" not in result.arrays:
        text = "The run ended before a model was there."
        seen = network_sections(result, _crosses(result))
        return [Section("What was learned", [Paragraph(text)]), *seen]
    found = [_learned(result), _servers(result, topology_of(result))]
    found += network_sections(result, _crosses(result))
    if any("msd" in row for row in result.metrics):
        found.append(_rounds(result))
    if "truth" in result.arrays and not result.data:
        found.append(_side_by_side(result))
    return [*found, private_section(result) if _sums(result) else _privacy(result)]


def export_graphs(result: RunResult, folder: Path) -> list[Path]:
    """Write ``graphs/servers.graphml`` with weights, and ``models.csv``, a row a server."""
    if "models" not in result.arrays:
        return []
    models, graph = result.arrays["models"], topology_of(result)
    upper = np.triu_indices(graph.servers, 1)
    drawn, table = folder / "graphs" / "servers.graphml", folder / "models.csv"
    write_graphml(drawn, graph.weights[upper], graph.names, threshold=0.0)
    rows: list[list[object]] = [["server", *names_of_parameters(result)]]
    for server in np.flatnonzero(known_servers(models)).tolist():
        rows.append([graph.names[server], *models[server].tolist()])
    centroid = centroid_of(result)
    if centroid is not None:
        rows.append(["centroid", *centroid.tolist()])
    write_atomically(table, csv_text(rows).encode())
    return [drawn, table]


def topology_of(result: RunResult) -> Topology:
    """Return the graph of the run; a ledger may know the names that a file gave its servers."""
    weights = result.arrays["combination"]
    known = [str(name) for name in result.network.get("names", ())]
    known = known or [str(entry.get("name", "")) for entry in result.ledger.get("clients", [])]
    names = known if len(known) == len(weights) else [f"server-{p}" for p in range(len(weights))]
    setting = "one server" if _method(result) == "fedavg" else str(result.config.get("topology"))
    rule = str(result.config.get("weights", "auto"))
    if rule == "auto" and not setting.lower().endswith(SUFFIXES):  # as `topology` has it
        rule = "metropolis"
    return Topology(tuple(names), weights, rule, setting)


def _method(result: RunResult) -> str:
    return str(result.config.get("method", "hybrid"))


def _crosses(result: RunResult) -> str:
    """Return what a letter tells a neighbour."""
    if _sums(result):
        return "Here it is the server's model, computed from noisy sums, as it is."
    learns = NEIGHBOUR_LEARNS.get(_method(result))
    return "" if learns is None else f"A neighbour of server m learns: {learns}."


def centroid_of(result: RunResult) -> Array | None:
    """Return the mean model; None where it is that of one server of several, or not known."""
    models, centroid = result.arrays["models"], result.arrays.get("centroid")
    one_of_several = len(models) > 1 and np.count_nonzero(known_servers(models)) < 2
    if centroid is None or one_of_several or not np.all(np.isfinite(centroid)):
        return None
    return centroid


def names_of_parameters(result: RunResult) -> list[str]:
    """Return names of the M parameters: the features where there is one each."""
    size = result.arrays["models"].shape[1]
    return parameter_names(result.variables, size) or [f"w{i}" for i in range(size)]


def _learned(result: RunResult) -> Section:
    """Return the method and the findings in numbers."""
    method, headline, alive = _method(result), result.headline, result.arrays["alive"]
    how = SUMS if _sums(result) else _METHODS.get(method, f"Method {method}.")
    blocks: list[Block] = [Paragraph(how)]
    gone = [f"server {p}" for p in np.flatnonzero(~alive)]
    lost = listed(gone)
    if lost and result.network:
        text = f"Gone at the end, as far as is known here: {lost}."
        blocks.append(Notice(f"{text} The others went on without what they would have told."))
    elif lost:
        how = "went to others" if result.config.get("on-server-loss") == "rehome" else "are lost"
        text = f"Not running at the end: {lost}. Their clients {how}."
        blocks.append(Notice(f"{text} Numbers are of the servers that run."))
    clients, size = len(result.arrays["homes"]), result.arrays["models"].shape[1]
    text = f"{clients:,} clients, {alive.size:,} servers, a model of {size:,} parameters. "
    if "msd" in headline:
        text += (
            f"Mean-square deviation from the true minimiser, {_of_what(result)}: "
            f"{headline['msd']:.1f} dB for the servers' mean model, {headline['msd-servers']:.1f} "
            "dB for a single server's. "
        )
    known = known_servers(result.arrays["models"])
    if not np.all(known):
        text += f"The models of {np.count_nonzero(known)} of them are known here. "
    if centroid_of(result) is not None and np.isfinite(headline.get("disagreement", np.nan)):
        text += f"The servers disagree by {number(headline['disagreement'])} at the end (mean "
        text += "squared distance to their mean)."
    else:
        text += "How far the servers disagree is not known from one of them."
    blocks.append(Paragraph(text))
    return Section("What was learned", blocks)


def _of_what(result: RunResult) -> str:
    kept = "of the models that are kept, means over the last rounds"
    return kept if _sums(result) else "mean over the last half of the rounds"


def _servers(result: RunResult, graph: Topology) -> Section:
    """Return the graph, drawn and in numbers, and the table of servers."""
    arrays = result.arrays
    alive, homes, models = arrays["alive"], arrays["homes"], arrays["models"]
    clients = np.bincount(homes[homes >= 0], minlength=graph.servers)
    known, centroid = known_servers(models), centroid_of(result)
    held = [count if here else None for count, here in zip(clients.tolist(), known, strict=True)]
    columns: dict[str, Sequence[object]] = {
        "server": graph.names,
        "clients": held,
        "neighbours": graph.degree.tolist(),
    }
    if centroid is not None:
        apart = np.sum((models - centroid) ** 2, axis=1).tolist()
        columns["squared distance to the centroid"] = apart
    if "truth" in arrays:
        columns["MSD, dB"] = [msd(model, arrays["truth"]) for model in models]
    if not np.all(alive):
        columns["runs"] = alive.tolist()
    about = graph.describe() | {"diameter": graph.diameter}
    facts = {name.replace("-", " ").capitalize(): value for name, value in about.items()}
    blocks: list[Block] = []
    if np.all(known):  # else the picture of who heard whom stands for it, below
        caption = "A node's size is its number of clients, a line's width the weight of the edge."
        caption += "" if np.all(alive) else " Hollow: not running at the end."
        picture = server_map(graph.weights, graph.names, clients.tolist(), alive)
        svg = plots.svg(picture, f"The graph of servers. {caption}")
        blocks.append(FigureBlock("The servers", svg, caption))
    blocks += [
        Facts(facts),
        Paragraph(
            "The spectral gap is 1 - lambda: a round without gradients or noise shrinks the "
            f"disagreement's root to {1.0 - graph.spectral_gap:.3f} of what it was, or less."
        ),
    ]
    leaves = [graph.names[p] for p in np.flatnonzero(graph.degree == 1)]
    if leaves and _method(result) == "masked":
        text = f"{listed(leaves)}: one neighbour only. Masks cannot hide that one's model, so "
        blocks.append(Notice(f"{text}noise of sigma stays on the edge; an edge more would end it."))
    worst = next(
        (name for name in ("MSD, dB", "squared distance to the centroid") if name in columns),
        "clients",
    )
    values: list[Any] = [np.nan if value is None else value for value in columns[worst]]
    caption, ends = "The servers at the end of the run.", (f"of largest {worst}", "of smallest")
    table = table_of(columns, shown(values), caption, ends, "result.npz and models.csv", "servers")
    return Section("The graph of servers", [*blocks, table])


def _rounds(result: RunResult) -> Section:
    """Return the MSD over the rounds, with the failures of servers."""
    rows = result.metrics
    x = [row.get("round", k + 1.0) for k, row in enumerate(rows)]
    names = ("msd", "msd-servers")
    lines = {WORDING.label(name): [row.get(name, np.nan) for row in rows] for name in names}
    figure = plots.curves(x, lines, y_label="dB")
    text = "Against the minimiser over the clients that have a server in the round."
    outages = parse_failures(str(result.config.get("failures") or ""), len(result.arrays["alive"]))
    events = _events(outages, int(x[-1]))
    for at, what in events[:_MARKS]:
        figure = plots.mark(figure, at, text=what)
    if events:
        text += " Dashed lines: servers that stop (-) or are back (+), by number."
        text += f" The first {_MARKS} are marked." if len(events) > _MARKS else ""
    svg = plots.svg(figure, f"Mean-square deviation against the round. {text}")
    return Section("Deviation over the rounds", [FigureBlock("Mean-square deviation", svg, text)])


def _events(outages: Sequence[Outage], last: int) -> list[tuple[float, str]]:
    """Return what happens to servers, by round."""
    found: dict[float, list[str]] = {}
    for outage in outages:
        found.setdefault(outage.first, []).append(f"-{outage.server}")
        found.setdefault(outage.last + 1, []).append(f"+{outage.server}")
    return [(at, " ".join(what)) for at, what in sorted(found.items()) if at <= last]


def _side_by_side(result: RunResult) -> Section:
    """Return the methods on this run's data, by simulation with its seed."""
    title = "The methods side by side"
    try:
        config = ServerGraphConfig.from_settings(result.config)
        edges = int(np.count_nonzero(result.arrays["combination"])) - len(result.arrays["alive"])
        rounds = affordable(config, len(result.metrics), edges)
        if rounds < min(FEWEST_ROUNDS, len(result.metrics)):
            return Section(title, [Paragraph(_TOO_LARGE), Code(_COMPARED)])
        rows, missing, settled = [], [], True
        sigma = config.sigma
        if config.is_auto("sigma"):  # what the run had chosen, by its epsilon
            sigma = float(result.ledger.get("sigma", DEFAULT_SIGMA))
        changed = {**result.config, "privacy": "none", "held-out": 0.0, "sigma": sigma}
        for method in SIDE_BY_SIDE:
            try:
                other = ServerGraphConfig.of_method({**changed, "method": method})
                found = simulate(other, result.seed, rounds)
            except ConfigError as error:
                missing.append(f"{method}: {error}")
                continue
            rows.append([method, *_numbers(other, found), NEIGHBOUR_LEARNS[method]])
            if method == "none":
                settled = _settled(found.msd)
    except (ConfigError, ValueError, OSError) as error:
        return Section(title, [Paragraph(f"Left out: {error}")])
    text = (
        f"The same data, clients, batches and seed for all, {rounds:,} rounds, sigma "
        f"{number(sigma)}; MSD is over the last half of them."
    )
    if rounds < len(result.metrics):
        text += f" The run itself had {len(result.metrics):,} rounds, so its numbers differ."
    if not settled:
        text += " It was still falling: this compares the way, not where the methods end."
    headers = ["method", WORDING.label("msd"), WORDING.label("msd-servers"), "messages a round"]
    headers += ["bytes a round", "a neighbour of server m learns"]
    notes: list[Block] = [Notice(f"Not run, {text}") for text in missing]
    caption = "Messages and bytes are between servers, when all run; keys for masks are sent once."
    return Section(title, [Paragraph(text), *notes, Table(headers, rows, caption)])


def affordable(config: ServerGraphConfig, rounds: int, edges: int = 0) -> int:
    """Return how many rounds a simulation may have, so that a report is there at once.

    ``edges`` are those between servers, counted in both directions.
    """
    samples = max(config.sample_counts())
    begin = config.clients * (_CLIENT + _NUMBER * samples * config.features) + _KEY * edges
    each = config.clients / config.servers
    asked = config.servers * (min(config.sample, each) if config.sample else each)
    batch = min(config.batch or samples, samples)
    work = asked * (1.0 + config.local_steps * (samples + batch * config.features) / 1000.0)
    left = (MOST_SECONDS - begin) / (_UPDATE * work + _LETTER * edges)
    return int(min(rounds, max(left, 0.0)))


def _settled(decibels: Array) -> bool:
    """Return whether the last quarter of the rounds is not wholly below the one before."""
    third, last = np.array_split(decibels, 4)[2:]
    return bool(last.size and last.max() >= third.min())


def _numbers(config: ServerGraphConfig, found: Simulation) -> list[object]:
    levels = [round(steady_state(x.tolist()), 2) for x in (found.msd, found.msd_servers)]
    spent = cost(config, found.topology, 1)
    return [*levels, spent.messages, spent.bytes]


def _privacy(result: RunResult) -> Section:
    """Return epsilon over the rounds, and who learns what."""
    method, rows = _method(result), result.metrics
    blocks: list[Block] = []
    lines = {
        WORDING.label(name): [row[name] for row in rows]
        for name in ("epsilon-paper", "epsilon-corrected")
        if rows and all(name in row for row in rows)
    }
    if lines:
        x = [row.get("round", k + 1.0) for k, row in enumerate(rows)]
        figure = plots.curves(x, lines, y_label="epsilon", log_y=True)
        figure = plots.level(figure, WORRYING, f"{WORRYING:g}: above, nobody is protected")
        ends = ", ".join(f"{name} {number(line[-1])}" for name, line in lines.items())
        text = (
            f"In the end: {ends}. The paper takes an l2 bound where Laplace noise needs l1. "
            f"{_APART if result.network else _TOGETHER}"
        )
        if method == "hybrid":
            text += (
                " It is not of who reads the kept result: a server's model in result.npz, with "
                "what the others sent, gives its psi without noise."
            )
        svg = plots.svg(figure, f"Epsilon against the round. {text}")
        blocks.append(FigureBlock("Epsilon over the rounds", svg, text))
    else:
        why = f"method {method} does not rest on noise."
        if result.ledger.get("simulated") is False and not result.network:
            why = "one process plays all servers, and clients are devices: their noise hides "
            why += "nothing from it."
        elif method in ("hybrid", "iid"):
            why = "it needs sigma > 0 and clip > 0, a bound on every sample's gradient."
        blocks.append(Paragraph(f"No epsilon can be told: {why}"))
    blocks.append(Facts({f"Threat model of {name}": told for name, told in THREATS.items()}))
    return Section("Privacy between servers", blocks)
