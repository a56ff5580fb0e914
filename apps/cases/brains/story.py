"""What the brains' runs say: sentences that choose their words by the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.joint_precision.report.named import named_graphs
from trellis.apps.pages.held_out import beside_alone
from trellis.apps.pages.page import Block, FigureBlock, Heading, Notice, Paragraph, Table
from trellis.apps.pages.plots import svg
from trellis.apps.pages.wording import counted
from trellis.privacy.accounting.zcdp import zcdp_epsilon

from .. import evidence
from ..blocks import against_alone, privacy_facts, ways_table, with_error
from ..case import Runs, Story
from ..evidence import BETTER, CHANCE, UNKNOWN, WORSE, Edge, Estimate
from .people import MEASURE, NewPeople
from .pictures import drawn, in_words, mirrored
from .scans import EACH, Scans, read_scans
from .ways import AGAIN, AGAIN_ALONE, ALONE, STRONG, TOGETHER, WEAK, WORDS

Vector = NDArray[np.float64]

_DRAWN, _LISTED, _STRONGEST = 60, 20, 50
_WAYS = (TOGETHER, WEAK, STRONG)
# What each way is held against: hospitals alone, with the same people to learn from.
_BESIDE = {**dict.fromkeys(_WAYS, ALONE), AGAIN: AGAIN_ALONE}


@dataclass(frozen=True, eq=False)
class Found:
    """What the runs left: new people's scores (m,) by way of learning, and edges by data."""

    scans: Scans
    people: NewPeople
    scores: Mapping[str, Vector]
    edges: list[Edge]
    again: list[Edge]
    splits: int

    @classmethod
    def of(cls, runs: Runs) -> Found:
        """Return what the runs found."""
        scans = read_scans()
        hospitals = [str(client["name"]) for client in runs[TOGETHER][0].clients]
        people = NewPeople.of(scans, hospitals)
        scores = {way: people.scores(runs[way]) for way in (*_BESIDE.values(), *_BESIDE)}
        edges, again = (_strong_first(runs[way]) for way in (TOGETHER, AGAIN))
        return cls(scans, people, scores, edges, again, len(runs[TOGETHER]))

    def share(self, way: str) -> Estimate:
        """Return what is foretold of new people, mean over hospitals."""
        return self.people.over_hospitals(self.scores[way])

    def gain(self, way: str) -> Estimate:
        """Return how much more is foretold than by a hospital alone, mean over hospitals."""
        return self.people.over_hospitals(self.scores[way] - self.scores[_BESIDE[way]])

    def people_ahead(self, way: str) -> int:
        """Return of how many new people more is foretold."""
        return int(np.sum(self.scores[way] > self.scores[ALONE]))

    def hospitals_ahead(self, way: str) -> int:
        """Return for how many hospitals more is foretold."""
        gains = self.people.by_hospital(self.scores[way] - self.scores[ALONE])
        return sum(value > 0.0 for value in gains.values())


def _strong_first(runs: Sequence[RunResult]) -> list[Edge]:
    """Return the edges that every hospital has in every split, strongest first."""
    edges = evidence.stability([named_graphs(run)["common"]() for run in runs])
    return [edge for edge in edges if edge.times == len(runs)]


def tell(runs: Runs) -> Story:
    """Return the story of the case from its runs."""
    found = Found.of(runs)
    return Story(
        answer=_answer(found),
        learned=_learned(found),
        sure=_sure(found, runs),
        cost=_cost(found, runs),
        better=_better(found),
        careful=_careful(),
        numbers={
            "people learned from": 2 * EACH * len(set(found.people.hospital)),
            "new people to judge by": len(found.people.hospital),
            "foretold, each hospital alone": _percent(found.share(ALONE).mean),
            "foretold, together": _percent(found.share(TOGETHER).mean),
            "together and private, epsilon 10": _percent(found.share(WEAK).mean),
        },
    )


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _points(one: Estimate) -> str:
    error = f" ± {100.0 * one.error:.1f}" if math.isfinite(one.error) else ""
    return f"{100.0 * one.mean:+.1f}{error} points of 100"


def _answer(found: Found) -> str:
    strongest = found.edges[:_STRONGEST]
    pairs = sum(mirrored(edge) for edge in strongest)
    lobe = {region.name: region.lobe for region in found.scans.regions}
    near = sum(
        not mirrored(edge) and lobe[edge.ends[0]] == lobe[edge.ends[1]] for edge in strongest
    )
    text = (
        f"Of the {len(strongest)} pairs that work together most, {pairs} are a region and its "
        f"mirror image on the other side, and {near} others are in one lobe of the brain.\n"
    )
    alone, together = found.share(ALONE), found.share(TOGETHER)
    text += {
        BETTER: "Learning together is better than alone, if not by much",
        CHANCE: "Whether learning together is better than alone cannot be told",
        WORSE: "Learning together is worse than alone",
        UNKNOWN: "One hospital cannot say whether learning together is better",
    }[found.gain(TOGETHER).verdict]
    text += (
        f": in people whom nobody had learned from, the other regions foretell "
        f"{_percent(together.mean)} of a region's ups and downs with the common graph, and "
        f"{_percent(alone.mean)} with the graph of a hospital alone.\n"
    )
    return text + _private_in_words(found)


def _private_in_words(found: Found) -> str:
    reached = f"{_percent(found.share(WEAK).mean)} at epsilon 10"
    reached += f" and {_percent(found.share(STRONG).mean)} at epsilon 3"
    good = [way for way in (WEAK, STRONG) if found.gain(way).verdict == BETTER]
    words = {
        2: "With noise for privacy that is still so",
        1: "With noise for privacy that depends on how much of it there is",
        0: "With noise for privacy nothing is gained",
    }[len(good)]
    return (
        f"{words} ({reached}), but what is then protected is a moment of a scan, not the person: "
        "nothing here would keep secret who took part."
    )


def _learned(found: Found) -> list[Block]:
    strong = found.edges[:_DRAWN]
    regions = found.scans.regions
    pairs = len(regions) * (len(regions) - 1) // 2
    text = (
        "A graph of 50 regions. Two are joined where one tells something of the other that no "
        "third region explains. Its strength is a partial correlation: 1 would be lockstep, 0 "
        f"nothing in common. Of {pairs:,} pairs, {len(found.edges):,} are joined at every "
        f"hospital and in every split; the {len(strong)} strongest are drawn."
    )
    again = {edge.ends for edge in found.again[:_STRONGEST]}
    rows = [
        [
            in_words(edge.ends[0]),
            in_words(edge.ends[1]),
            round(edge.weight, 2),
            "yes" if edge.ends in again else "no",
        ]
        for edge in found.edges[:_LISTED]
    ]
    headers = ["region", "works with", "strength", "as strong in other people"]
    caption = (
        f"The {len(rows)} strongest pairs. The last column: is the pair among the {_STRONGEST} "
        "strongest of 40 other people, too?"
    )
    return [
        Paragraph(text),
        drawn(strong, regions),
        drawn(strong, regions, ring=True),
        Table(headers, rows, caption),
    ]


def _sure(found: Found, runs: Runs) -> list[Block]:
    regions = len(found.scans.regions)
    first, again = found.edges[:_STRONGEST], found.again[:_STRONGEST]
    shared = len({edge.ends for edge in first} & {edge.ends for edge in again})
    chance = len(first) * len(again) / (regions * (regions - 1) / 2)
    other = (
        "Is it the brain, or these few people? The same hospitals learned once more, from as many "
        f"other people. Of the {len(first)} strongest pairs {shared} are among the {len(again)} "
        f"strongest there, too; by chance it would be {chance:.0f}. And what they foretell of the "
        f"new people beyond each hospital alone is {_points(found.gain(AGAIN))} there, "
        f"{_points(found.gain(TOGETHER))} here."
    )
    mirror = sum(mirrored(edge) for edge in first)
    known = (
        "A check against what is known: the two sides of the brain are joined by a broad bundle of "
        "fibres, so regions should go with their mirror image. Nobody told the software which "
        f"regions these are. {mirror} of the {len(first)} strongest pairs are such, of 25 that "
        "there can be."
    )
    measure = (
        "How good a graph is was judged by people whom nobody had learned from: from all other "
        "regions of such a person the graph foretells each one, and we measure which share of its "
        "ups and downs (its variance, by ranks) is foretold right. Errors (±) are standard errors "
        "over hospitals, each of which has new people of its own."
    )
    return [
        Paragraph(measure),
        Paragraph(other),
        Paragraph(known),
        *_groups(found),
        *_split(found, runs),
    ]


def _groups(found: Found) -> list[Block]:
    """Return whether the common graph fits people with and without autism alike."""
    values, autism = found.scores[TOGETHER], found.people.autism
    where = np.array(found.people.hospital)
    gaps = [
        float(values[(where == name) & autism].mean() - values[(where == name) & ~autism].mean())
        for name in dict.fromkeys(found.people.hospital)
    ]
    one = evidence.estimate(gaps, 0.0)
    words = {
        BETTER: "more is foretold than",
        WORSE: "less is foretold than",
        CHANCE: "as much is foretold, within chance, as",
        UNKNOWN: "one hospital cannot say whether as much is foretold as",
    }[one.verdict]
    text = (
        f"Half of the people have autism. Of them {words} of the others (difference "
        f"{_points(one)}). The graph is of both together: whether their brains differ is another "
        "question, which 40 people cannot answer. On a smaller file of the same study the graphs "
        "of 11 people with and 11 without differed no more than those of two groups drawn by lot "
        "(trellis paper joint-precision abide)."
    )
    return [Heading("People with and without autism"), Paragraph(text)]


def _split(found: Found, runs: Runs) -> list[Block]:
    ways = {WORDS[way]: runs[way] for way in _WAYS}
    usual = evidence.gain(runs[TOGETHER])
    misleads = found.gain(TOGETHER).mean > 0.0 and usual is not None and usual.mean < 0.0
    text = (
        "What software usually does is another test: hold out a fifth of the time points, and "
        f"judge by these, see below. That {'misleads here' if misleads else 'may mislead'}: a "
        "held-out moment lies seconds from one that was learned from, in the same person, so a "
        "hospital alone, which knows its four people by heart, looks better than it is for the "
        "next patient. The log likelihood says how probable a graph makes such a moment."
    )
    table = ways_table(ways, called="log likelihood", client="hospital")
    return [Heading("Why not by held-out time points"), Paragraph(text), table]


def _cost(found: Found, runs: Runs) -> list[Block]:
    longest = found.scans.longest
    blocks: list[Block] = [
        Paragraph(
            "Open means: no noise. No scan is sent, but the server can work out every hospital's "
            "table of correlations between regions. That is for hospitals that trust whoever runs "
            "the server."
        )
    ]
    spent = {way: evidence.epsilon_spent(runs[way]) or 0.0 for way in (WEAK, STRONG)}
    whole = {way: _of_a_person(runs[way][0], longest) for way in (WEAK, STRONG)}
    people = 2 * EACH * len(set(found.people.hospital))
    blocks += [
        Paragraph(
            "Private means: noise is added at the hospitals before anything leaves, and the server "
            "sees one sum over all of them. Epsilon says how much that gives away: whoever sees "
            "it and knows all records but one can become more certain about that one by a factor "
            "of e to the power of epsilon at most, "
            f"{math.exp(spent[STRONG]):,.0f} at {spent[STRONG]:.3g} and "
            f"{math.exp(spent[WEAK]):,.0f} at {spent[WEAK]:.3g}, which is what the ledgers say was "
            "spent per run (but for a chance of 1 in 100,000, delta). Epsilon 10 is a weak promise."
        ),
        Notice(
            "A record here is one time point of a scan, not a person. A person is up to "
            f"{longest} records, and for all of them together the promise is epsilon "
            f"{whole[STRONG]:,.0f} or {whole[WEAK]:,.0f}: none at all. It does not hide that "
            "somebody took part, nor what a whole scan shows. With the same noise in the result, "
            f"a promise to a person would take about {longest} times as many people, "
            f"{people * longest:,} in place of {people}."
        ),
        Paragraph(
            "A second limit: each scan was put on a common scale by its own mean and spread before "
            "anything was learned. One time point changed in the scanner moves the others of that "
            "scan a little by this, which epsilon does not count: it counts rows of the files as "
            "they are."
        ),
        Heading("The ledger, epsilon 3, in its own words"),
        privacy_facts(runs[STRONG]),
    ]
    return blocks


def _of_a_person(run: RunResult, records: int) -> float:
    """Return epsilon, at the run's delta, of so many records together: k^2 rho of zCDP."""
    rho = max(float(client["rho"]) for client in run.ledger["clients"])
    return zcdp_epsilon(records**2 * rho, float(run.ledger["delta"]))


def _better(found: Found) -> list[Block]:
    total = len(found.people.hospital)
    hospitals = len(set(found.people.hospital))
    rows: list[list[object]] = [
        ["knowing nothing: no edges", _percent(0.0), None, None, None],
        [WORDS[ALONE], with_error(found.share(ALONE), percent=True), None, None, None],
    ]
    for way in _WAYS:
        rows.append(
            [
                WORDS[way],
                with_error(found.share(way), percent=True),
                against_alone(found.gain(way)),
                f"{found.people_ahead(way)} of {total}",
                f"{found.hospitals_ahead(way)} of {hospitals}",
            ]
        )
    headers = ["", "foretold", "than alone", "new people it is better for", "hospitals"]
    caption = f"{MEASURE.capitalize()}, in {counted(total, 'new person')}; more is better."
    text = "; ".join(f"{WORDS[way]}: {_points(found.gain(way))}" for way in _WAYS)
    scores = found.people.table(found.scores[TOGETHER], found.scores[ALONE])
    told = "Blue: together, open; orange: alone. Each hospital is judged by its own new people."
    figure = svg(beside_alone(scores), f"{MEASURE}, hospital by hospital. {told}")
    return [
        Paragraph(f"What is foretold beyond every hospital alone: {text}."),
        Table(headers, rows, caption),
        FigureBlock("Hospital by hospital", figure, told),
    ]


def _careful() -> list[Block]:
    text = [
        "Regions that rise and fall together need not be wired together, and nothing here says "
        "which drives which. Breathing, the heart and small movements of the head also move "
        "regions together; the files were not cleaned of all of that.",
        "Each hospital had four people to learn from, as a small one might. With more people "
        "of its own it gains less from the others.",
        "Regions got their names from a second atlas, by whose series they follow most closely in "
        "five people who are in both files. 25 pairs of regions where that is clear were kept: "
        "they are not the whole brain. Neighbours that were left out may stand behind some lines.",
        "Splits differ in the time points that were left out, not in the people. Errors over "
        "hospitals take the people as they are: ten hospitals are few.",
        "The method was not chosen blindly: two ways of learning together, and two with privacy, "
        "were tried on the new people, and the better of each is shown. The people of the second "
        "learning had no part in that choice, the new people had.",
        "This is no diagnosis, and nothing here says anything about a single person.",
        "Everything ran in one process. In such a rehearsal noise comes from the seed and protects "
        "nobody; the ledgers say what real devices would spend.",
    ]
    return [Notice(text[0]), *map(Paragraph, text[1:])]
