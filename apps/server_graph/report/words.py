"""What server-graph calls its numbers; nothing else is loaded for it."""

from __future__ import annotations

from trellis.apps.pages.wording import Wording

WORDING = Wording(
    labels={
        "msd": "MSD of the centroid, dB",
        "msd-servers": "MSD of single servers, dB",
        "disagreement": "disagreement between servers",
        "servers": "servers that run",
        "spectral-gap": "spectral gap",
        "between-servers": "bytes between servers",
        "epsilon-paper": "epsilon by the paper's formula",
        "epsilon-corrected": "epsilon, corrected",
        "epsilon": "epsilon spent",
        "alone-msd": "MSD of a client by itself, dB",
        "score": "score on held-out samples",
        "score-noise": "noise in the score",
    },
    headline=("msd", "msd-servers", "disagreement", "score", "epsilon-corrected", "epsilon"),
    measure="msd",
    lower_is_better=True,
)
