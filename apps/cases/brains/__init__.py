"""brains: ten hospitals, scans of the resting brain (ABIDE), which may not leave them.

Which regions work together (joint-precision)? `scans` reads the data and gives regions names,
`ways` has the ways of learning, `people` judges graphs by people whom nobody has learned from,
`story` has the sentences and `pictures` the pictures.
"""

from __future__ import annotations

from ..case import Case
from .scans import prepare
from .story import tell
from .ways import planned

CASE = Case(
    name="brains",
    title="Ten hospitals, one map of the resting brain",
    question=(
        "Which regions of the brain work together, learned by ten hospitals that may not share "
        "their scans?"
    ),
    source=(
        "ABIDE I, by the Preprocessed Connectomes Project (Craddock et al. 2013; Di Martino et al. "
        "2014), CC BY-NC-SA 3.0, for research only: 240 people at ten sites, 12 with autism and 12 "
        "without at each, who lay still in a scanner for some minutes. Every two seconds or so it "
        "took a picture of how active each region was: 116 to 296 time points per person. 25 "
        "regions on either side of the brain were used. Nobody may try to find out who these "
        "people are."
    ),
    needs="ABIDE in the folder that TRELLIS_DATA names",
    prepare=prepare,
    planned=planned,
    story=tell,
    client="hospital",
)
