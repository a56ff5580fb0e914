"""A case that takes a second: three clients that share one line, learned open and private."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trellis.apps.cases import evidence
from trellis.apps.cases.blocks import clients_blocks, privacy_facts, ways_figure, ways_table
from trellis.apps.cases.case import Case, Planned, Runs, Story
from trellis.apps.pages.page import Paragraph


def prepare(folder: Path) -> None:
    draw = np.random.default_rng(7)
    (folder / "outcomes").mkdir(parents=True)
    for name in ("north", "south", "west"):
        values = draw.normal(size=(20, 2))
        label = (values[:, 0] > 0).astype(int)
        rows = [f"{a:.6f},{b:.6f},{c}" for (a, b), c in zip(values, label, strict=True)]
        (folder / "outcomes" / f"{name}.csv").write_text("\n".join(["first,second,y", *rows]))


def planned(quick: bool) -> list[Planned]:
    rounds = {"rounds": 5 if quick else 10}
    private = {"privacy": "dp", "epsilon": 3.0, **rounds}
    return [
        Planned("open", "server-graph", "together, without privacy", rounds, "outcomes"),
        Planned("private", "server-graph", "together, private", private, "outcomes"),
    ]


def story(runs: Runs) -> Story:
    ways = {"together, without privacy": runs["open"], "together, private": runs["private"]}
    gained = evidence.gain(runs["open"])
    assert gained is not None
    return Story(
        answer=f"Together is {gained.verdict}.",
        learned=[Paragraph("A line.")],
        sure=[ways_figure(ways, percent=True)],
        cost=[privacy_facts(runs["private"])],
        better=[
            ways_table(ways, percent=True, client="ward"),
            *clients_blocks(runs["open"], client="ward"),
        ],
        careful=[],
        numbers={"clients": 3},
    )


TOY = Case(
    name="toy",
    title="A line <b>shared</b>",
    question="Do three wards learn a line?",
    source="Drawn for a test.",
    prepare=prepare,
    planned=planned,
    story=story,
    client="ward",
)
