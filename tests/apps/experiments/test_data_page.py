"""The page of data sets names every one that figures, cases and tests read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from trellis.apps.common.tables import DataError
from trellis.apps.experiments.datasets import dataset

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "data.md").read_text()
CALL = re.compile(r"""\b(?:dataset|collection|neighbourhoods|need)\(\s*"([A-Z][\w-]+|students)\"""")


def named() -> set[str]:
    files = [
        path
        for folder in ("apps", "tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return {
        name for path in files if path != Path(__file__) for name in CALL.findall(path.read_text())
    }


def test_every_data_set_that_code_reads_has_a_row_and_a_section():
    found = named()
    assert {"ABIDE", "COIL20", "MUTAG", "MNIST", "students"} <= found
    for name in found:
        assert f"| `{name}` |" in PAGE, name
        assert re.search(rf"^### .*\b{name}\b", PAGE, re.MULTILINE), name


@pytest.mark.parametrize(
    ("name", "file", "shapes"),
    [
        ("ABIDE", "abide_cc200.npz", {"ts": (44992, 200), "dx": (240,)}),
        ("ABIDE", "abide_aal116.npz", {"ts": (4310, 116), "dx": (22,)}),
        ("COIL20", "coil20.npz", {"images": (1440, 32, 32), "labels": (1440,)}),
        ("MedNIST", "mednist28.npz", {"train_images": (6000, 28, 28), "test_labels": (1500, 1)}),
    ],
)
def test_files_have_the_arrays_that_the_page_tells(name, file, shapes):
    try:
        folder = dataset(name)
    except DataError as error:
        pytest.skip(str(error))
    with np.load(folder / file) as arrays:
        for array, shape in shapes.items():
            assert arrays[array].shape == shape
            assert f"`{array}`" in PAGE
