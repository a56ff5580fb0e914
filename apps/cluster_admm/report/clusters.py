"""The parts of a cluster-admm report on clusters and servers: who is where, and who agrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components, shortest_path

from trellis.apps.common.results import RunResult
from trellis.apps.pages import plots
from trellis.apps.pages.clients.chosen import shown, table_of
from trellis.apps.pages.page import Block, Facts, FigureBlock, Notice, Paragraph, Section, Table
from trellis.apps.pages.server_map import server_map
from trellis.apps.pages.wording import counted, number
from trellis.strategies.cluster_admm.mixing import neighbourhood_means

from .outcome import Outcome, Places, distances
from .words import NMSD

DRAWN_CLUSTERS = 6
METHODS = {
    "pgfl": "one model a cluster; servers tell their neighbours, clusters learn from each other",
    "gfl": "one model for all clients; servers tell their neighbours",
    "clusterfl": "one model a cluster at every server; servers do not talk to each other",
    "local": "every client for itself",
    "fedavg": "one server, one model for all clients",
    "moments": "one model per cluster, from noisy sums over all clients; no ADMM",
}


def method_of(result: RunResult) -> str:
    """Return the run's method."""
    return str(result.config.get("method", "pgfl"))


def clusters(result: RunResult, outcome: Outcome) -> Section:
    """Return the clusters in numbers and pictures, and whose clients are where."""
    method, title = method_of(result), "The clusters' models"
    alone = method == "local"  # every client is its own server there
    words = ("server", "cluster", "parameter")
    many = [counted(n, word) for n, word in zip(outcome.models.shape, words, strict=True)]
    text = f"Method {method}: {METHODS.get(method, 'not one of this study')}. "
    text += f"{counted(outcome.homes.size, 'client')}, "
    text += f"models of {many[2]}. " if alone else f"{many[0]}, {many[1]}, models of {many[2]}. "
    overall = outcome.nmsd_of(np.ones(outcome.homes.size, dtype=np.bool_))
    if overall is not None:
        whose = "clients' own models" if alone else "models that clients have from their servers"
        text += "Normalised mean-square deviation from the true models, mean over the "
        text += f"{whose}: {overall:.1f} dB."
    if not np.all(outcome.known):
        here = f"{np.count_nonzero(outcome.known):,} of the {len(outcome.known):,} servers"
        text = f"{text.strip()} Known here: models and clients of {here}; numbers are of those."
    blocks: list[Block] = [Paragraph(text.strip())]
    if not alone:
        blocks += [_cluster_table(outcome), *_pictures(outcome)]
    if outcome.true_groups is not None and np.any(outcome.true_groups != outcome.groups):
        blocks.append(_truth_table(outcome, outcome.true_groups))
    return Section(title, blocks if alone else [*blocks, _server_table(outcome)])


def _cluster_table(outcome: Outcome) -> Table:
    """Return a row a cluster: who is in it, how its copies differ, which one is nearest."""
    count = len(outcome.means)
    apart = distances(outcome.means) + np.diag(np.full(count, np.inf))
    columns: dict[str, Sequence[object]] = {
        "cluster": outcome.cluster_names,
        "clients": outcome.counts.sum(axis=0).tolist(),
        "servers that have them": np.count_nonzero(outcome.counts, axis=0).tolist(),
        "length of the model": np.linalg.norm(outcome.means, axis=1).tolist(),
        "disagreement of servers": outcome.disagreement.tolist(),
    }
    if count > 1:
        columns["nearest cluster"] = [outcome.cluster_names[q] for q in apart.argmin(axis=1)]
        columns["distance to it"] = apart.min(axis=1).tolist()
    if outcome.truth is not None:
        members = [outcome.groups == q for q in range(count)]
        columns[NMSD] = [outcome.nmsd_of(member) for member in members]
    caption = (
        "The clusters at the end. Disagreement is the root mean square distance of the servers' "
        "copies to their mean, over the servers that have clients of the cluster."
    )
    return Table(list(columns), list(zip(*columns.values(), strict=True)), caption)


def _truth_table(outcome: Outcome, true_groups: Places) -> Table:
    """Return a row a true cluster: where its clients are in the run, how well they do."""
    rows = []
    for q in np.unique(true_groups).tolist():
        members = true_groups == q
        where = np.bincount(outcome.groups[members], minlength=outcome.models.shape[1])
        rows.append([f"true cluster {q}", outcome.nmsd_of(members), *where.tolist()])
    caption = "Clients of the clusters that the data was made from, by their cluster in the run."
    return Table(["", NMSD, *outcome.cluster_names], rows, caption)


def _server_table(outcome: Outcome) -> Table:
    """Return a row a server: its clients, all and by cluster, and its neighbours."""
    columns: dict[str, Sequence[object]] = {
        "server": outcome.server_names,
        "clients": outcome.held,
    }
    if outcome.adjacency is not None:
        columns["neighbours"] = outcome.adjacency.sum(axis=1).tolist()
    for name, counts in zip(outcome.cluster_names, outcome.counts.T.tolist(), strict=True):
        pairs = zip(counts, outcome.known, strict=True)
        columns[name] = [count if here else None for count, here in pairs]
    sizes = [np.nan if held is None else held for held in outcome.held]
    caption, ends = (
        "The servers, with their clients in all and by cluster.",
        ("largest", "smallest"),
    )
    return table_of(columns, shown(sizes), caption, ends, "models.csv", "servers")


def _pictures(outcome: Outcome) -> list[Block]:
    """Return heat maps of distances: between clusters, between servers' copies of each."""
    found: list[Block] = []
    between = distances(outcome.means)
    if len(between) > 1:
        off = between[np.triu_indices(len(between), 1)]
        length = float(np.linalg.norm(outcome.means, axis=1).mean())
        text = f"From {number(float(off.min()))} to {number(float(off.max()))} between the mean "
        text += f"models of two clusters; the models are {number(length)} long on average."
        figure = plots.heat_map(between, outcome.cluster_names, label="distance")
        title = "Distance between clusters' models"
        found.append(FigureBlock(title, plots.svg(figure, f"{title}. {text}"), text))
    known = outcome.models[outcome.known]
    if len(known) > 1:
        drawn = outcome.cluster_names[:DRAWN_CLUSTERS]
        copies = [distances(known[:, q]) for q in range(len(drawn))]
        ends = [f"{name}: {number(float(d.max()))}" for name, d in zip(drawn, copies, strict=True)]
        first = outcome.server_names[int(np.argmax(outcome.known))]
        text = f"Servers in order from {first}; the largest distances: "
        text += f"{', '.join(ends)}. One colour scale for all."
        if len(drawn) < outcome.models.shape[1]:
            text += f" The first {DRAWN_CLUSTERS} clusters are drawn."
        figure = plots.heat_maps(copies, drawn, label="distance")
        title = "Distance between servers' copies of a cluster's model"
        found.append(FigureBlock(title, plots.svg(figure, f"{title}. {text}"), text))
    return found


def servers(result: RunResult, outcome: Outcome) -> list[Section]:
    """Return the servers' graph, drawn and in numbers, and what it does to the models."""
    A = outcome.adjacency
    if A is None or method_of(result) == "local":
        return []
    held, degree = outcome.counts.sum(axis=1), A.sum(axis=1)
    parts = int(connected_components(A, directed=False)[0])
    diameter = float(shortest_path(A, unweighted=True, directed=False).max())
    facts: dict[str, object] = {
        "Graph": str(result.config.get("topology", "")) if len(A) > 1 else "one server",
        "Servers": len(A),
        "Edges": int(np.triu(A).sum()),
        "Mean number of neighbours": float(degree.mean()),
        "Diameter": diameter,
        "Components": parts,
    }
    paper = result.config.get("mixing", "paper") == "paper" and method_of(result) != "clusterfl"
    if paper and len(A) > 1:
        # M is similar to a symmetric matrix: its eigenvalues are real. The largest is 1.
        left = float(np.sort(np.abs(np.linalg.eigvals(neighbourhood_means(A))))[-2])
        facts["Second eigenvalue of (9)"] = (
            f"{number(left)}; in the long run (9) alone leaves that of a disagreement, a round"
        )
    blocks: list[Block] = [Facts(facts)]
    if len(A) > 1 and np.all(outcome.known):  # else who heard whom is drawn in its place
        least, most = int(held.min()), int(held.max())
        text = f"A node's size is its number of clients, {least:,} to {most:,}."
        text = text if least < most else f"All have {counted(most, 'client')}."
        picture = server_map(A.astype(np.float64), outcome.server_names, held.tolist())
        # Names stand beside the outermost nodes, and a reader's font may be wide.
        picture.axes[0].margins(0.3)
        drawn = f"The graph of servers: {len(A):,} servers, {facts['Edges']:,} edges. {text}"
        blocks.insert(0, FigureBlock("The servers", plots.svg(picture, drawn), text))
    if method_of(result) == "clusterfl":
        blocks.append(Paragraph("Servers did not talk in this run: no edge was used."))
    elif parts > 1:
        blocks.append(
            Notice(f"{parts:,} components: what is learned in one does not reach others.")
        )
    elif paper and degree.min() < len(A) - 1:
        blocks.append(
            Paragraph(
                "Servers mixed as the paper has it, (8)-(10). Where not all servers are neighbours "
                "this does not end at a cluster's optimum, also with tau = 0: a server with more "
                "neighbours counts for more. With mixing = exact and tau = 0 it does."
            )
        )
    return [Section("The graph of servers", blocks)]
