"""What the molecules' runs say: sentences that choose their words by the numbers."""

from __future__ import annotations

import math

from trellis.apps.common.evaluation.measures import ACCURACY, ALONE, THIS
from trellis.apps.pages.held_out import beside_alone
from trellis.apps.pages.page import Block, FigureBlock, Heading, Notice, Paragraph, Table
from trellis.apps.pages.plots import svg

from .. import evidence
from ..blocks import against_alone, clients_blocks, privacy_facts, ways_table, with_error
from ..case import Runs, Story
from ..evidence import BETTER, CHANCE, UNKNOWN, WORSE, Estimate
from .alike import MEASURE, by_chance, by_company, over_companies, scores
from .owners import dealt
from .pictures import drawn, most_alike
from .ways import ALIKE, MODEL, PRIVATE_MODEL, STRONG, WEAK, WORDS

_RIGHT = "effects told right"
_AT_HOME, _SIZES = "a company's own molecules only", "numbers of atoms alone"


class Found:
    """Shares of nearest molecules with the same effect, mean over companies, and differences."""

    def __init__(self, runs: Runs) -> None:
        opened = runs[ALIKE]
        self.alone = by_company(opened, own=True)
        self.sizes = by_company(opened, sizes=True)
        self.sizes_alone = by_company(opened, own=True, sizes=True)
        self.ways = {way: by_company(runs[way]) for way in (ALIKE, WEAK, STRONG)}
        self.chance = by_chance(opened[0])

    def share(self, way: str) -> Estimate:
        """Return the share of one way."""
        return over_companies(self.ways[way])

    def over_alone(self, way: str) -> Estimate:
        """Return the gain over a company's own molecules."""
        return over_companies(self.ways[way] - self.alone)

    def over_sizes(self, way: str) -> Estimate:
        """Return the gain over the numbers of atoms, which every way gives away."""
        return over_companies(self.ways[way] - self.sizes)


def tell(runs: Runs) -> Story:
    """Return the story of the case from its runs."""
    found = Found(runs)
    return Story(
        answer=_answer(found, runs),
        learned=_learned(runs),
        sure=_sure(found, runs),
        cost=_cost(found, runs),
        better=_better(found, runs),
        careful=_careful(runs),
        numbers={
            "molecules": sum(int(client["count"]) for client in runs[ALIKE][0].clients),
            "same effect, nearest at home": _percent(float(found.alone.mean())),
            "same effect, nearest elsewhere": _percent(found.share(ALIKE).mean),
            "elsewhere, by numbers of atoms alone": _percent(float(found.sizes.mean())),
            "nearest elsewhere, private, epsilon 3": _percent(found.share(STRONG).mean),
        },
    )


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _points(one: Estimate) -> str:
    error = f" ± {100.0 * one.error:.1f}" if math.isfinite(one.error) else ""
    return f"{100.0 * one.mean:+.1f}{error} points of 100"


def _answer(found: Found, runs: Runs) -> str:
    text = {
        BETTER: "Without privacy, yes",
        CHANCE: "Even without privacy that cannot be said for sure",
        WORSE: "No, not even without privacy",
        UNKNOWN: "Too few companies took part to say",
    }[found.over_alone(ALIKE).verdict]
    text += (
        ": the molecule most like one's own has the same effect in "
        f"{_percent(found.share(ALIKE).mean)} of all cases if it is looked up at the other "
        "companies, in "
        f"{_percent(float(found.alone.mean()))} if at home. "
    )
    text += {
        BETTER: "That is more than the mere number of atoms would tell",
        CHANCE: "But the mere number of atoms tells as much, within chance",
        WORSE: "But the mere number of atoms tells more",
        UNKNOWN: "The mere number of atoms tells",
    }[found.over_sizes(ALIKE).verdict]
    text += (
        f" ({_percent(float(found.sizes.mean()))}, and {_percent(float(found.sizes_alone.mean()))} "
        "at home).\n"
    )
    text += {
        BETTER: "With a promise of privacy to every molecule some of it is left",
        CHANCE: "With a promise of privacy to every molecule nothing is left but the number of "
        "atoms, which is not kept secret: it is not worth it",
        WORSE: "With a promise of privacy to every molecule it is worse than the number of atoms, "
        "which is not kept secret: it is not worth it",
        UNKNOWN: "With a promise of privacy to every molecule it is",
    }[found.over_sizes(STRONG).verdict]
    text += f" ({_percent(found.share(STRONG).mean)} at epsilon 3).\n"
    return text + _model_in_words(runs)


def _model_in_words(runs: Runs) -> str:
    gain = evidence.gain(runs[MODEL], measure=ACCURACY)
    ours, alone = (evidence.score(runs[MODEL], row, ACCURACY) for row in (THIS, ALONE))
    if gain is None or ours is None or alone is None:
        return "A common model of harm could not be judged."
    words = {
        BETTER: "A common model that tells harmful from harmless is better than each company's",
        CHANCE: "A common model that tells harmful from harmless is no better, within chance, than "
        "each company's",
        WORSE: "A common model that tells harmful from harmless is worse than each company's",
        UNKNOWN: "One split cannot say whether a common model is better than each company's",
    }[gain.verdict]
    return f"{words}: {_percent(ours.mean)} right beside {_percent(alone.mean)}."


def _learned(runs: Runs) -> list[Block]:
    text = (
        "How unlike any two molecules are, whoever owns them, as one number: their Gromov-"
        "Wasserstein distance. A small network, the same for all, describes every atom by its "
        "surroundings; two molecules are near where the atoms of one can be laid over those of the "
        "other so that atoms alike fall on atoms alike. Structures stay at home; the server gets "
        "the descriptions and computes the distances."
    )
    model = (
        "And a model: a network taught by all companies, round by round, to tell from a structure "
        "whether a molecule is mutagenic. No structure is sent, only what was learned from them."
    )
    return [
        Paragraph(text),
        drawn(most_alike(runs[ALIKE][0], dealt())),
        Paragraph(model),
    ]


def _sure(found: Found, runs: Runs) -> list[Block]:
    splits = len(runs[MODEL])
    held = sum(client["count"] for client in runs[MODEL][0].scores["clients"])
    text = (
        "Distances are judged by what is known: has the molecule that is found nearest the same "
        "effect? The network that describes the atoms was not told any effect, so this is no echo. "
        f"By chance it would be {_percent(found.chance)}. Errors (±) are standard errors over "
        f"companies; everything was done {splits} times, with other random numbers."
    )
    model = (
        f"The model was judged on a fifth of every company's molecules, {held} in all, which "
        f"nobody had learned from, in {splits} splits. That is few: one molecule more or less is "
        f"{100.0 / held:.1f} points of 100."
    )
    return [Paragraph(text), Paragraph(model)]


def _cost(found: Found, runs: Runs) -> list[Block]:
    spent = evidence.epsilon_spent(runs[STRONG]) or 0.0
    text = (
        "Open means: no noise. The server sees the description of every atom, from which parts "
        "of a structure can be guessed, and the companies' models."
    )
    private = (
        "Private means: from every atom's description a few coin tosses are sent, a little biased "
        "by what is true. A record is one molecule. Epsilon says what all its tosses together give "
        "away: whoever sees them can become more certain that it is this molecule and not another "
        f"one of as many atoms by a factor of e to the power of epsilon at most, "
        f"{math.exp(spent):,.0f} at {spent:.3g}, which is what the ledger says was spent per run. "
        "At 300 that is no promise at all; it is here to see whether less noise would help."
    )
    told = (
        "What is told in the open all the same: how many molecules a company has, the number of "
        "atoms of each, and whether each is mutagenic (the effects are shared, so that the nearest "
        "molecule tells something)."
    )
    return [
        Paragraph(text),
        Paragraph(private),
        Notice(told),
        Heading("The ledger, epsilon 3, in its own words"),
        privacy_facts(runs[STRONG]),
        Heading("The model's ledger, epsilon 3, in its own words"),
        privacy_facts(runs[PRIVATE_MODEL]),
    ]


def _better(found: Found, runs: Runs) -> list[Block]:
    rows: list[list[object]] = [
        ["knowing nothing", _percent(found.chance), None, None],
        [_AT_HOME, with_error(over_companies(found.alone), percent=True), None, None],
        [f"{_SIZES}, own molecules only", None, None, None],
        [f"{_SIZES}, all companies", None, None, None],
    ]
    for row, values in zip(rows[2:], (found.sizes_alone, found.sizes), strict=True):
        row[1] = with_error(over_companies(values), percent=True)
        row[2] = against_alone(over_companies(values - found.alone))
    for way in (ALIKE, WEAK, STRONG):
        rows.append(
            [
                WORDS[way],
                with_error(found.share(way), percent=True),
                against_alone(found.over_alone(way)),
                against_alone(found.over_sizes(way)),
            ]
        )
    headers = ["where to look", "same effect", "than own only", "than numbers of atoms"]
    caption = f"{MEASURE.capitalize()}: how often; more is better."
    gains = "; ".join(
        f"{WORDS[way]}: {_points(found.over_alone(way))}" for way in (ALIKE, WEAK, STRONG)
    )
    told = "Blue: nearest at the other companies, open; orange: nearest at home."
    figure = svg(beside_alone(scores(runs[ALIKE])), f"{MEASURE}, company by company. {told}")
    models = {WORDS[way]: runs[way] for way in (MODEL, PRIVATE_MODEL)}
    return [
        Heading("Molecules that are alike"),
        Paragraph(f"Beyond what a company finds at home: {gains}."),
        Table(headers, rows, caption),
        FigureBlock("Company by company", figure, told),
        Heading("Telling harmful from harmless"),
        Paragraph(
            f"{_model_in_words(runs)} With privacy a company keeps whichever model its own "
            "molecules like best: the common one, that one trained on at home, or its own."
        ),
        ways_table(models, ACCURACY, percent=True, called=_RIGHT, client="company"),
        *clients_blocks(runs[MODEL], ACCURACY, client="company", percent=True),
    ]


def _careful(runs: Runs) -> list[Block]:
    counts = [int(client["count"]) for client in runs[ALIKE][0].clients]
    home = round(sum(counts) / len(counts)) - 1
    text = [
        "188 molecules of one family, nitro compounds with rings, are few, and the number of "
        "atoms alone says much about their effect. In a collection where it says nothing, "
        "structure may be worth more, or less.",
        "The companies are made up, and molecules were dealt at random: all have the same kind. "
        "Real companies have their own kinds, and the nearest molecule elsewhere would be farther.",
        f"At home a company has about {home} other molecules to look among, elsewhere about "
        f"{sum(counts) - home - 1}: much of what is gained is that there are more of them.",
        "Some networks, distances and budgets were tried on these molecules before these were "
        "taken; none made the common model clearly better than each company's.",
        "That two molecules are alike here says nothing of what they do in a body.",
        "Everything ran in one process. In such a rehearsal noise comes from the seed and protects "
        "nobody; the ledgers say what real devices would spend.",
    ]
    return [Notice(text[0]), *map(Paragraph, text[1:])]
