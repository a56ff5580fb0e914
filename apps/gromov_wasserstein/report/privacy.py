"""What a release of embeddings hides, by the size of a graph, and what no epsilon covers.

A graph with n nodes and rows of length h sends, e times (e = 2 with ``estimator = "double"``), m
bits of each of its r rows; r = n, but with ``privacy = "paper"`` the whole graph is one row of n h.
A bit costs b and is flipped with probability 1 / (e^b + 1), so the graph costs e r m b. Before the
flip a bit is 1 with probability x, the entry in [0, 1] that it stands for: a wrong bit is one that
was flipped, half of all bits at b = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import ConfigError
from trellis.apps.pages.page import Block, Facts, Notice, Paragraph, Section, Table
from trellis.apps.pages.wording import number

from ..config import GromovWassersteinConfig
from ..release import code_of, half_of, statement
from .outcome import Outcome

PRIVACY = "What a release hides"
_TERMS = {
    "claim": "What is claimed",
    "neighbouring": "Neighbouring data",
    "adversary": "Against whom",
    "not_covered": "Not covered",
}
_COIN_FLIPS = 0.45  # wrong bits; from here on little but their number is left


@dataclass(frozen=True)
class Cost:
    """What one release of a graph with so many nodes sends; symbols as the module has them."""

    nodes: int
    entries: int
    encodings: int
    rows: int
    m: int
    bit_budget: float

    @property
    def bits(self) -> int:
        """How many bits the graph sends."""
        return self.encodings * self.rows * self.m

    @property
    def epsilon(self) -> float:
        """What the graph's release costs."""
        return self.bits * self.bit_budget

    @property
    def flip(self) -> float:
        """The probability that a bit is wrong."""
        return math.exp(-self.bit_budget) / (1.0 + math.exp(-self.bit_budget))


def cost_of(config: GromovWassersteinConfig, h: int, nodes: int) -> Cost:
    """Return what one release of a graph costs, from the encoder that clients use.

    Raises
    ------
    ValueError
        Where the settings have no encoder for such a graph.
    """
    code = code_of(config, h, nodes)
    twice = config.estimator == "double"
    code = half_of(config, code) if twice else code
    rows = 1 if config.encoder == "printed" else nodes
    return Cost(nodes, nodes * h, 2 if twice else 1, rows, code.m, code.bit_budget)


def privacy(result: RunResult, outcome: Outcome | None) -> Section:
    """Return the section: budgets, bits by size of graph, who learns what."""
    try:
        config = GromovWassersteinConfig.from_settings(result.config)
    except ConfigError as error:
        return Section(
            PRIVACY, [Paragraph(f"Not known; the settings are not this study's: {error}")]
        )
    blocks: list[Block] = []
    if config.encoder == "none":
        told = statement(config)
        blocks.append(Notice(f"{told['claim']} Not covered: {told['not_covered']}"))
    else:
        blocks += [Facts(_budget(config, result, outcome)), *_bits(config, result, outcome)]
        if result.engine != "deployment":
            text = "This run was a simulation: bits came from the seed and protect nobody."
            blocks.append(Notice(text))
    blocks.append(_who_learns_what(config))
    if config.encoder != "none" and not result.ledger:
        blocks.append(Notice("The run has no ledger: what was spent is not known."))
        blocks.append(Facts({term: statement(config)[key] for key, term in _TERMS.items()}))
    return Section(PRIVACY, blocks)


def _budget(
    config: GromovWassersteinConfig, result: RunResult, outcome: Outcome | None
) -> dict[str, object]:
    """Return the budgets of a graph and of a node, and how often they were spent."""
    epsilon = number(config.bits_epsilon)
    largest = None if outcome is None else int(outcome.sizes.max())
    facts: dict[str, object] = {}
    if config.encoder == "printed":
        facts["Of a graph"] = f"{epsilon} is claimed; as printed it spends a fraction 1/n of that"
        facts["Of a node"] = "no budget of its own: m bits of a whole graph are sent"
    elif config.budget_per == "graph":
        facts["Of a graph"] = f"epsilon = {epsilon} a release, all its rows together"
        facts["Of a node's row"] = f"{epsilon} / n in a graph with n nodes"
    else:
        text = f"n times {epsilon} a release"
        if largest is not None:
            text += f"; the largest has n = {largest:,}: {number(config.bits_epsilon * largest)}"
        facts["Of a graph"] = text
        facts["Of a node's row"] = (
            f"epsilon = {epsilon} a release. It does not bound what is told about a node: message "
            "passing writes its data into other rows of the graph too"
        )
    if config.sums:
        facts["Of training"] = (
            f"epsilon = {number(config.training_epsilon)} at delta = {config.delta:g}, all "
            f"{config.rounds:,} noisy sums together, of a graph"
        )
    if config.score_epsilon:
        facts["Of the score on held-out graphs"] = f"epsilon = {number(config.score_epsilon)}"
    released = sum(row.get("released-graphs", 0.0) > 0.0 for row in result.metrics)
    if released:
        facts["Releases"] = f"{released:,}; those of one graph add up"
    total = result.ledger.get("epsilon")
    if total is not None:
        facts["The ledger's total"] = (
            f"epsilon = {number(float(total))}, of the client that spent most, by its largest graph"
        )
    return facts


def _bits(
    config: GromovWassersteinConfig, result: RunResult, outcome: Outcome | None
) -> list[Block]:
    """Return how many bits graphs send, and how many of them are wrong."""
    h = _row_length(config, result)
    if outcome is None or h is None:
        return [Paragraph("Bits by size of graph are not told: no embedding was released.")]
    sizes, counts = np.unique(outcome.sizes, return_counts=True)
    try:
        costs = [cost_of(config, h, int(n)) for n in sizes]
    except ValueError as error:
        return [Paragraph(f"Bits by size of graph are not told: {error}")]
    many = counts @ np.array([cost.bits for cost in costs], dtype=np.float64)
    wrong = counts @ np.array([cost.bits * cost.flip for cost in costs])
    share = float(wrong / many)
    whole = int(counts @ np.array([cost.entries for cost in costs]))
    text = f"All graphs together send {int(many):,} bits for {whole:,} entries of embeddings, rows "
    text += f"of h = {h}. Expected share of wrong bits: {100.0 * share:.1f} %."
    middle = int(np.sort(outcome.sizes)[outcome.count // 2])
    shown = [cost for cost in costs if cost.nodes in (sizes[0], middle, sizes[-1])]
    headers = ["nodes", "epsilon of the graph", "bits m of a row", "bits of the graph"]
    headers += ["of entries", "epsilon of a bit", "flip probability", "wrong bits, expected"]
    rows: list[list[object]] = [
        [
            cost.nodes,
            cost.epsilon,
            None if config.encoder == "printed" else _times(cost),
            cost.bits,
            cost.entries,
            cost.bit_budget,
            cost.flip,
            cost.bits * cost.flip,
        ]
        for cost in shown
    ]
    caption = "One release of the smallest graph, of one of median size and of the largest. "
    caption += "A bit is 1 with the probability of its entry, then flipped; a flipped one is wrong."
    blocks: list[Block] = [Paragraph(text), Table(headers, rows, caption)]
    if share > _COIN_FLIPS:
        text = f"{100.0 * share:.1f} % wrong bits are nearly coin flips (50 %): what is learned "
        text += "from these codes may be no more than the graphs' numbers of nodes. Compare with "
        text += "the controls."
        blocks.append(Notice(text))
    return blocks


def _times(cost: Cost) -> object:
    return cost.m if cost.encodings == 1 else f"{cost.encodings} x {cost.m}"


def _row_length(config: GromovWassersteinConfig, result: RunResult) -> int | None:
    """Return h, from the codes or from the settings."""
    codes = np.asarray(result.arrays.get("codes", ()))
    if codes.ndim == 2 and codes.shape[1]:
        return int(codes.shape[1])
    return config.width if config.task == "graph" else config.classes or None


def _who_learns_what(config: GromovWassersteinConfig) -> Table:
    """Return what leaves a client, who sees it, and whether epsilon covers it."""
    embeddings = "as they are" if config.encoder == "none" else "encoded"
    covered = "no" if config.encoder == "none" else "yes"
    training = _updates(config)
    derived = "yes, but for the labels and sizes that go into it" if covered == "yes" else "no"
    labels = "the server, in the clear" if config.share_labels else "nobody: they are not sent"
    rows: list[list[object]] = [
        [f"embeddings, {embeddings}", "the server", covered],
        *training,
        ["numbers of graphs and of their nodes", "the server, exactly", "no"],
        ["clients' and features' names, number of classes", "the server", "no"],
        ["labels of graphs", labels, "no" if config.share_labels else None],
        ["distances, and what is learned from them", "the server, readers of this report", derived],
    ]
    if config.at_home:
        rows.append(["a client's own model and raw embeddings", "nobody but the client", None])
    caption = "Who learns what, and whether epsilon covers it."
    return Table(["what", "who learns it", "covered by epsilon"], rows, caption)


def _updates(config: GromovWassersteinConfig) -> list[list[object]]:
    """Return the lines of the table on training and its model."""
    everyone = "the server and every client"
    if not config.trains:
        return [["weights from the seed; nothing is trained", everyone, None]]
    if config.sums:
        return [
            ["clipped gradients of graphs", "the server, their noisy sum only", "yes"],
            ["the model that comes of them", everyone, "yes"],
        ]
    updates = (
        "the server, their mean only (secure aggregation is on)"
        if config.secure_aggregation
        else "the server, every client's (secure aggregation is off)"
    )
    return [
        ["updates of training, with loss, hits and numbers of items", updates, "no"],
        ["the model that comes of them", everyone, "no"],
    ]
