"""The molecules of MUTAG, dealt to eight companies at random, about as many to each."""

from __future__ import annotations

from pathlib import Path

from trellis.apps.common.seeds import generator
from trellis.apps.experiments.datasets import dataset
from trellis.apps.gromov_wasserstein.files.npz import write_graphs
from trellis.apps.gromov_wasserstein.files.tudataset import read_tudataset
from trellis.apps.gromov_wasserstein.graphs import Graph

COMPANIES = 8
FOLDER = "molecules"
# What node labels of MUTAG stand for, in their order.
ATOMS = ("C", "N", "O", "F", "I", "Cl", "Br")


def dealt() -> dict[str, list[Graph]]:
    """Return every company's molecules, always the same.

    Raises
    ------
    DataError
        Where MUTAG is not there; says which variable to set.
    """
    molecules = read_tudataset(dataset("MUTAG"))
    order = generator(1, "companies").permutation(len(molecules))
    return {
        f"company-{k + 1}": [molecules[place] for place in order[k::COMPANIES]]
        for k in range(COMPANIES)
    }


def prepare(folder: Path) -> None:
    """Write one npz file per company."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, own in dealt().items():
        write_graphs(folder / FOLDER / f"{name}.npz", own)


def formula(molecule: Graph) -> str:
    """Return the atoms of a molecule, hydrogen left out: C10 N1 O2."""
    counts = [int((molecule.node_labels == k).sum()) for k in range(len(ATOMS))]
    return " ".join(f"{atom}{n}" for atom, n in zip(ATOMS, counts, strict=True) if n)
