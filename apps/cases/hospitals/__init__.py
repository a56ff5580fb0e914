"""hospitals: twelve small hospitals, 569 biopsies of breast tumours, part of scikit-learn.

Two questions on the same patients: which tumours are malignant (server-graph), and which
measurements of cell nuclei go together (joint-precision). `data` deals the patients to hospitals,
`ways` has the ways of learning, `learned` and `story` tell what came of them.
"""

from __future__ import annotations

from ..case import Case
from .data import prepare
from .story import tell
from .ways import planned

CASE = Case(
    name="hospitals",
    title="Twelve hospitals, one disease",
    question=(
        "Is it worth it for twelve small hospitals to learn together, without showing each other "
        "a patient?"
    ),
    source=(
        "Breast Cancer Wisconsin (Diagnostic), by W. H. Wolberg, W. N. Street and O. L. "
        "Mangasarian, UCI Machine Learning Repository, CC BY 4.0, as it comes with scikit-learn: "
        "569 patients, 30 measurements of cell nuclei in a sample taken from the breast by a fine "
        "needle, 212 malignant and 357 benign. The hospitals are made up: patients were dealt to "
        "twelve of them at random, unequally."
    ),
    prepare=prepare,
    planned=planned,
    story=tell,
    client="hospital",
)
