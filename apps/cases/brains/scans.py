"""Scans of ABIDE as ten hospitals hold them, with regions that have names and places.

The series of 240 persons at ten sites (CC200) have regions without names. Five of these persons are
also in a second, smaller file (AAL) whose regions have names and places. A region of CC200 is
called like the region of AAL whose series it follows most closely in these five, where that is
mutual, the correlation is `CLOSE` at least, and the same holds on the other side of the brain:
25 regions on either side. All others, and the cerebellum, are left out.

Every region is standardised within every person: scales differ by scanner and person.
"""

from __future__ import annotations

import csv
import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.experiments.datasets import dataset

Matrix = NDArray[np.float64]

LEARNED, OTHERS, NEW = "scans", "other-people", "new-people"
EACH = 2  # persons of either group that a hospital learns from, and as many others
CLOSE = 0.8
_LEFT, _RIGHT = "_L", "_R"
_LEFT_OUT = "Cerebellum"

HOSPITALS = {
    "KKI": "Baltimore",
    "LEUVEN_1": "Leuven",
    "MAX_MUN": "Munich",
    "NYU": "New York",
    "PITT": "Pittsburgh",
    "TRINITY": "Dublin",
    "UCLA_1": "Los Angeles",
    "UM_1": "Ann Arbor",
    "USM": "Salt Lake City",
    "YALE": "New Haven",
}


@dataclass(frozen=True, eq=False)
class Person:
    """One scan: its hospital, whether autism was diagnosed, and the standardised series (n, p)."""

    hospital: str
    autism: bool
    series: Matrix


@dataclass(frozen=True)
class Region:
    """A region: AAL's name, lobe and centre (mm), its column in CC200, how closely they agree."""

    name: str
    lobe: str
    place: tuple[float, float, float]
    column: int
    agreement: float

    @property
    def mirror(self) -> str:
        """The name of the same region on the other side."""
        side = _RIGHT if self.name.endswith(_LEFT) else _LEFT
        return self.name[: -len(_LEFT)] + side


@dataclass(frozen=True, eq=False)
class Scans:
    """All persons, in the order of the file, which is by site and group."""

    people: list[Person]
    regions: list[Region]

    @cached_property
    def dealt(self) -> dict[str, dict[str, list[Person]]]:
        """Persons by what they are for (`LEARNED`, `OTHERS`, `NEW`) and by hospital."""
        found: dict[str, dict[str, list[Person]]] = {LEARNED: {}, OTHERS: {}, NEW: {}}
        for hospital in sorted(HOSPITALS.values()):
            for autism in (True, False):
                mine = [p for p in self.people if (p.hospital, p.autism) == (hospital, autism)]
                for use, start, end in (
                    (LEARNED, 0, EACH),
                    (OTHERS, EACH, 2 * EACH),
                    (NEW, 2 * EACH, None),
                ):
                    found[use].setdefault(hospital, []).extend(mine[start:end])
        return found

    @property
    def names(self) -> list[str]:
        """The regions' names."""
        return [region.name for region in self.regions]

    @property
    def longest(self) -> int:
        """The most time points of any person that is learned from."""
        return max(len(p.series) for own in self.dealt[LEARNED].values() for p in own)


def read_scans() -> Scans:
    """Return all persons, with the regions that have a name.

    Raises
    ------
    DataError
        Where ABIDE is not there; says which variable to set.
    """
    folder = dataset("ABIDE")
    with np.load(folder / "abide_cc200.npz") as file, np.load(folder / "abide_aal116.npz") as named:
        series = _by_person(file)
        regions = _named_regions(series, named)
        columns = [region.column for region in regions]
        people = [
            Person(HOSPITALS[str(site)], bool(diagnosis), np.round(_standard(own[:, columns]), 4))
            for own, site, diagnosis in zip(series.values(), file["site"], file["dx"], strict=True)
        ]
    return Scans(people, regions)


def _by_person(file: np.lib.npyio.NpzFile) -> dict[str, Matrix]:
    series, ends = file["ts"].astype(np.float64), file["offsets"]
    parts = [series[a:b] for a, b in itertools.pairwise(ends)]
    return dict(zip(map(str, file["file_id"]), parts, strict=True))


def _standard(series: Matrix) -> Matrix:
    deviation = series.std(axis=0)
    standard: Matrix = (series - series.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return standard


def agreement(first: dict[str, Matrix], second: dict[str, Matrix]) -> Matrix:
    """Return the correlation (p, q) of two atlases' regions, mean over the persons in both.

    Where one file has the start of a scan cut off, the ends are compared.
    """
    found = []
    for person in first.keys() & second.keys():
        rows = min(len(first[person]), len(second[person]))
        a, b = (_standard(atlas[person][-rows:]) for atlas in (first, second))
        found.append(a.T @ b / rows)
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)


def _named_regions(series: dict[str, Matrix], named: np.lib.npyio.NpzFile) -> list[Region]:
    close = agreement(_by_person(named), series)
    best = close.argmax(axis=1)
    mutual = close[:, best].argmax(axis=0) == np.arange(len(close))
    names, lobes = [str(n) for n in named["roi"]], [str(n) for n in named["lobe"]]
    fits = {
        name
        for k, name in enumerate(names)
        if mutual[k] and close[k].max() >= CLOSE and lobes[k] != _LEFT_OUT
    }
    regions = [
        Region(
            name,
            lobes[k],
            tuple(float(x) for x in named["mni"][k]),  # type: ignore[arg-type]
            int(best[k]),
            float(close[k].max()),
        )
        for k, name in enumerate(names)
    ]
    paired = [r for r in regions if r.name.endswith((_LEFT, _RIGHT))]
    return [r for r in paired if {r.name, r.mirror} <= fits]


def prepare(folder: Path) -> None:
    """Write one file per hospital to learn from, one per new person, and a list of the regions."""
    scans = read_scans()
    for use in (LEARNED, OTHERS):
        for hospital, own in scans.dealt[use].items():
            rows = np.concatenate([person.series for person in own])
            _write(folder / use / f"{hospital}.csv", scans.names, rows.tolist())
    for hospital, own in scans.dealt[NEW].items():
        for number, person in enumerate(own, start=1):
            path = folder / NEW / f"{hospital} {number:02d}.csv"
            _write(path, scans.names, person.series.tolist())
    table = [[r.name, r.lobe, *r.place, r.column + 1, round(r.agreement, 3)] for r in scans.regions]
    _write(folder / "regions.csv", ["name", "lobe", "x", "y", "z", "cc200", "agreement"], table)


def _write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
