"""How well graphs foretell the brains of people whom nobody has learned from.

With Omega the precision matrix and S the rank correlations of a new person's regions, what the
others foretell of region j leaves (Omega S Omega)_jj / Omega_jj^2 of its variance (S_jj = 1). One
minus that, mean over regions, is the share of a region's ups and downs that is foretold; without
edges it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.joint_precision.private.own import raw_correlation

from ..evidence import Estimate, beside_alone, estimate
from .scans import NEW, Scans

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

MEASURE = "share of a region's ups and downs that is foretold"


def foretold(precision: Matrix, correlation: Matrix) -> float:
    """Return the share of a region's variance that the others foretell, mean over regions."""
    left = np.einsum("ij,jk,ki->i", precision, correlation, precision) / np.diag(precision) ** 2
    return float(np.mean(1.0 - left))


@dataclass(frozen=True, eq=False)
class NewPeople:
    """New people of the hospitals that took part: (m,) each, and their correlations (m, p, p)."""

    hospital: list[str]
    autism: NDArray[np.bool_]
    correlation: Matrix

    @classmethod
    def of(cls, scans: Scans, hospitals: Sequence[str]) -> NewPeople:
        """Return the new people of some hospitals."""
        people = [person for name in hospitals for person in scans.dealt[NEW][name]]
        return cls(
            [person.hospital for person in people],
            np.array([person.autism for person in people]),
            np.array([raw_correlation(person.series) for person in people]),
        )

    def scores(self, runs: Sequence[RunResult]) -> Vector:
        """Return what each person's own hospital foretells of them (m,), mean over the splits."""
        found = []
        for run in runs:
            names = [str(client["name"]) for client in run.clients]
            graphs = dict(zip(names, run.arrays["precision"], strict=True))
            pairs = zip(self.hospital, self.correlation, strict=True)
            found.append([foretold(graphs[name], own) for name, own in pairs])
        return np.asarray(np.mean(found, axis=0), dtype=np.float64)

    def by_hospital(self, values: Vector) -> dict[str, float]:
        """Return the mean of ``values`` (m,) over each hospital's new people."""
        where = np.array(self.hospital)
        return {name: float(values[where == name].mean()) for name in dict.fromkeys(self.hospital)}

    def over_hospitals(self, values: Vector) -> Estimate:
        """Return the mean over hospitals with its standard error.

        Hospitals are the unit, not people: people of one hospital are judged by one graph.
        """
        return estimate(list(self.by_hospital(values).values()), 0.0)

    def table(self, together: Vector, alone: Vector) -> dict[str, Any]:
        """Return both as scores (`trellis.apps.common.evaluation.scores`), a row per hospital."""
        ours, theirs = self.by_hospital(together), self.by_hospital(alone)
        clients = [(name, self.hospital.count(name), ours[name], theirs[name]) for name in ours]
        return beside_alone(MEASURE, clients, (float(together.mean()), float(alone.mean())))
