"""The hospitals' files: scikit-learn's patients, dealt at random and unequally."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.results import write_atomically
from trellis.install import pip_install

HOSPITALS = 12
FEWEST = 24  # patients of the smallest hospital, about
NUCLEI, OUTCOMES, SCALES = "nuclei", "outcomes", "scales.csv"
# Means over the nuclei of a sample. Perimeter and area are the radius again: with 31 patients they
# may put them in the very same order, and no precision matrix tells the two apart.
PROPERTIES = (
    *("mean radius", "mean texture", "mean smoothness", "mean compactness", "mean concavity"),
    *("mean concave points", "mean symmetry", "mean fractal dimension"),
)
_SEED = 20  # of the deal; splits have seeds of their own


def deal(patients: int) -> list[NDArray[np.intp]]:
    """Return which patients each hospital has: all of them once, hospitals of unequal size."""
    draw = np.random.default_rng(_SEED)
    share = draw.dirichlet(np.full(HOSPITALS, 2.0))
    ends = np.rint(np.cumsum(share) * (patients - FEWEST * HOSPITALS)).astype(int)
    ends += FEWEST * np.arange(1, HOSPITALS + 1)
    return np.split(draw.permutation(patients), ends[:-1])


def prepare(folder: Path) -> None:
    """Write one file per hospital, in original units: ``nuclei``, and ``outcomes`` with y.

    ``nuclei`` has eight mean measurements (`PROPERTIES`), ``outcomes`` all thirty and y = 1 for
    malignant. ``scales.csv`` has what is usual for each of the thirty, as anybody might know it:
    mean and deviation with one digit.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError(
            f"the hospitals' patients are part of scikit-learn: {pip_install('laptop')}"
        ) from error
    found = load_breast_cancer()
    names = [str(name) for name in found.feature_names]
    means = [names.index(name) for name in PROPERTIES]
    malignant = 1 - found.target  # scikit-learn has 0 for malignant
    for place, patients in enumerate(deal(len(malignant))):
        name = f"hospital-{place + 1:02d}.csv"
        values = found.data[patients]
        _write(folder / NUCLEI / name, list(PROPERTIES), values[:, means].tolist())
        rows = [[*row, int(y)] for row, y in zip(values.tolist(), malignant[patients], strict=True)]
        _write(folder / OUTCOMES / name, [*names, "y"], rows)
    usual = zip(names, found.data.mean(axis=0), found.data.std(axis=0), strict=True)
    rounded = [[name, *(float(f"{value:.1g}") for value in pair)] for name, *pair in usual]
    _write(folder / SCALES, ["name", "offset", "scale"], rounded)


def _write(path: Path, columns: list[str], rows: Sequence[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
