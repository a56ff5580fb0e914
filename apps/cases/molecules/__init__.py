"""molecules: eight companies, 188 molecules (MUTAG), whose structures nobody may see.

Which molecules are alike, and which change the genes of bacteria (gromov-wasserstein)? `owners`
deals the molecules, `ways` has the ways of learning, `alike` measures what neighbours at other
companies are worth, `story` has the sentences and `pictures` the molecules drawn.
"""

from __future__ import annotations

from ..case import Case
from .owners import prepare
from .story import tell
from .ways import planned

CASE = Case(
    name="molecules",
    title="Eight companies, 188 molecules",
    question=(
        "Can eight companies find out which of their molecules are alike, and which do harm, "
        "without showing each other a structure?"
    ),
    source=(
        "MUTAG (Debnath et al. 1991), as in TUDataset (Morris et al. 2020), no licence stated: 188 "
        "molecules of 10 to 28 atoms, without hydrogen, 125 of which change the genes of a "
        "bacterium (they are mutagenic, a warning sign of cancer) and 63 of which do not. The "
        "companies are made up: molecules were dealt to eight of them at random."
    ),
    needs="MUTAG in the folder that TRELLIS_DATA names; torch and POT",
    prepare=prepare,
    planned=planned,
    story=tell,
    client="company",
)
