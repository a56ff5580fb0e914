"""The papers' figures, tables and theorems: a TOML each, in the ``paper`` folder of its study.

``fig3.toml``, say, is ``trellis paper STUDY fig3``::

    title = "Recovery over the share of common edges"
    make = "synthetic:figure_3"        # module:function of the same folder
    on-request = false                 # true: made when it is asked for by name, and only then

    [full]                             # the paper's own sizes; every number the function reads
    seeds = 20
    overlaps = [0.2, 0.35, 0.5, 0.65, 0.8]

    [quick]                            # what differs in a quick look
    seeds = 4

    [test]                             # what differs in the tests: all seeds of `full`, small runs
    rounds = 2

    [[claim]]                          # what the paper says; the function returns a verdict on each
    name = "fig3-above-igl"
    place = "Fig. 3"
    says = "FedGL is above learning alone at every share"
    source = "read off the plot"       # where the paper's number comes from

The function takes a `making.Making` and returns a `finding.Finding` for every claim of its file.
Claims that nothing can test stand in ``untested.toml``, with their verdict, the reason and what
shows it.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from trellis.apps import study_module
from trellis.apps.common.settings import ConfigError

from .finding import Finding

if TYPE_CHECKING:
    from .making import Making

    Maker = Callable[[Making], Sequence[Finding]]

Size = Literal["full", "quick", "test"]
SIZES: tuple[str, ...] = get_args(Size)
UNTESTED = "untested.toml"


@dataclass(frozen=True)
class Claim:
    """One thing that a paper says."""

    name: str
    place: str
    says: str
    source: str


@dataclass(frozen=True)
class Figure:
    """One figure, table or theorem of a paper: how it is made, and what it is to show."""

    study: str
    name: str
    title: str
    maker: str
    on_request: bool
    sizes: Mapping[str, Mapping[str, Any]]
    claims: tuple[Claim, ...]

    def numbers(self, size: Size) -> dict[str, Any]:
        """Return all numbers of one size."""
        return {**self.sizes["full"], **self.sizes[size]}

    @property
    def command(self) -> str:
        """What makes it."""
        return f"trellis paper {self.study} {self.name}"

    def function(self) -> Maker:
        """Return what makes it; imports its module."""
        module, _, function = self.maker.partition(":")
        found: Maker = getattr(study_module(self.study, f"paper.{module}"), function)
        return found


def paper_folder(study: str) -> Path:
    """Return the folder of a study's figures."""
    return Path(str(study_module(study).__file__)).resolve().parent / "paper"


def figures(study: str) -> dict[str, Figure]:
    """Return all figures of a study by name, in the order of their names."""
    found = {}
    for path in sorted(paper_folder(study).glob("*.toml"), key=_natural):
        told = tomllib.loads(path.read_text())
        if "make" in told:
            found[path.stem] = _figure(study, path, told)
    return found


def figure_names(study: str) -> list[str]:
    """Return the figures that are made when none is asked for."""
    return [name for name, figure in figures(study).items() if not figure.on_request]


def figure(study: str, name: str) -> Figure:
    """Return one figure.

    Raises
    ------
    ConfigError
        For a name that the study does not have.
    """
    known = figures(study)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{name}: unknown figure{meant}; {study} has {', '.join(known)}")
    return known[name]


def untested(study: str) -> list[tuple[Claim, Finding]]:
    """Return the claims of a study that no figure tests, each with its verdict and the reason."""
    path = paper_folder(study) / UNTESTED
    if not path.is_file():
        return []
    found = []
    for told in tomllib.loads(path.read_text())["claim"]:
        verdict = Finding(told["name"], told["found"], told["verdict"], told.get("why", ""))
        found.append((_claim(path, told), verdict))
    return found


def _figure(study: str, path: Path, told: Mapping[str, Any]) -> Figure:
    unknown = set(told) - {"title", "make", "on-request", "claim", *SIZES}
    if unknown:
        raise ConfigError(f"{path}: unknown {', '.join(sorted(unknown))}")
    full = told.get("full", {})
    for size in SIZES[1:]:
        stray = set(told.get(size, {})) - set(full)
        if stray:
            raise ConfigError(f"{path}: [{size}] has {', '.join(sorted(stray))}, [full] has not")
    return Figure(
        study,
        path.stem,
        told["title"],
        told["make"],
        told.get("on-request", False),
        {size: told.get(size, {}) for size in SIZES},
        tuple(_claim(path, claim) for claim in told.get("claim", ())),
    )


def _claim(path: Path, told: Mapping[str, Any]) -> Claim:
    missing = {"name", "place", "says", "source"} - set(told)
    if missing:
        raise ConfigError(f"{path}: a claim without {', '.join(sorted(missing))}: {dict(told)}")
    return Claim(told["name"], told["place"], told["says"], told["source"])


def _natural(path: Path) -> list[tuple[int, str]]:
    """Order ``fig10`` after ``fig9``."""
    return [
        (int(part or 0), "") if part.isdigit() else (0, part)
        for part in re.split(r"(\d+)", path.stem)
    ]
