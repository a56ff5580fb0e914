"""The brain drawn: strongest edges in a head, and around a circle with the regions' names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trellis.apps.pages.brains.connectome import connectome
from trellis.apps.pages.page import FigureBlock
from trellis.apps.pages.plots import svg

from ..evidence import Edge
from .scans import Region

Matrix = NDArray[np.float64]

_LOBES = {"SCGM": "deep inside", "Limbic": "cingulate"}
_MIRROR = ("a region and its mirror image", "other pairs")
# AAL's names in plain words; what a region is best known for stands in brackets.
_PLAIN = {
    "Angular": "angular gyrus",
    "Calcarine": "calcarine cortex (seeing)",
    "Cingulum_Ant": "front of the cingulate",
    "Cingulum_Mid": "middle of the cingulate",
    "Cuneus": "cuneus (seeing)",
    "Frontal_Inf_Orb": "lower frontal, above the eye",
    "Frontal_Inf_Tri": "lower frontal, at the side",
    "Frontal_Sup_Medial": "upper frontal, inner face",
    "Fusiform": "fusiform gyrus (faces)",
    "Insula": "insula",
    "Lingual": "lingual gyrus (seeing)",
    "Occipital_Mid": "middle occipital (seeing)",
    "Paracentral_Lobule": "paracentral lobule (legs)",
    "Parietal_Inf": "lower parietal",
    "Parietal_Sup": "upper parietal",
    "Postcentral": "postcentral gyrus (touch)",
    "Precuneus": "precuneus",
    "Putamen": "putamen (movement)",
    "Rolandic_Oper": "Rolandic operculum (mouth)",
    "Supp_Motor_Area": "supplementary motor area (movement)",
    "SupraMarginal": "supramarginal gyrus",
    "Temporal_Mid": "middle temporal",
    "Temporal_Pole_Sup": "temporal pole",
    "Temporal_Sup": "upper temporal (hearing)",
    "Thalamus": "thalamus",
}


def in_words(name: str) -> str:
    """Return a region's name in plain words: ``left thalamus``."""
    stem, side = name[:-2], {"_L": "left", "_R": "right"}.get(name[-2:], "")
    return f"{side} {_PLAIN.get(stem, stem.replace('_', ' '))}".strip()


def mirrored(edge: Edge) -> bool:
    """Return whether an edge joins a region to its mirror image."""
    return edge.ends[0][:-1] == edge.ends[1][:-1]


def drawn(edges: Sequence[Edge], regions: Sequence[Region], *, ring: bool = False) -> FigureBlock:
    """Return edges in a head seen from three sides, or around a circle with names.

    On the circle the right side of the brain is to the right and the front on top, as in a head
    that is seen from above.
    """
    if ring:
        by_front = sorted(regions, key=lambda region: -region.place[1])
        right = [region for region in by_front if region.name.endswith("_R")]
        mirror_of = {region.name: region for region in regions}
        regions = [*right, *(mirror_of[region.mirror] for region in reversed(right))]
    place = {region.name: number for number, region in enumerate(regions)}
    size = len(regions)
    weights, mirror = np.zeros((size, size)), np.zeros((size, size), dtype=bool)
    for edge in edges:
        u, v = sorted(place[end] for end in edge.ends)
        weights[u, v], mirror[u, v] = edge.weight, mirrored(edge)
    lobes = [_LOBES.get(region.lobe, region.lobe.lower()) for region in regions]
    names = [_short(region.name) for region in regions]
    places = None if ring else np.array([region.place for region in regions])
    groups = None if ring else lobes
    figure = connectome(weights, places, names, groups=groups, common=mirror, legend=_MIRROR)
    title = "The same, with names" if ring else "The strongest pairs, inside the head"
    text = (
        "The right side of the brain is to the right, the front on top; names are those of the "
        "atlas (AAL)."
        if ring
        else "Dots are regions, thick lines strong pairs."
    )
    return FigureBlock(title, svg(figure, f"{title}: {len(edges)} lines. {text}"), text)


def _short(name: str) -> str:
    return f"{name[:-2].replace('_', ' ')} {name[-1]}"
