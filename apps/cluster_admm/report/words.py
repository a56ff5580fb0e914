"""What cluster-admm calls its numbers; nothing else is loaded for it."""

from __future__ import annotations

from trellis.apps.pages.wording import Wording

NMSD = "NMSD, dB"
WORDING = Wording(
    labels={
        "nmsd": "NMSD of clients' own models, dB",
        "nmsd-servers": NMSD,
        "change": "relative change",
        "tau": "tau, pull between clusters",
        "moved": "clients that changed cluster",
        "right": "share of clients in their true cluster",
        "score": "score of the private models on held-out samples",
        "score-error": "standard error of the score",
        "noise": "deviation of the noise in an entry of the sum",
    },
    headline=("nmsd-servers", "nmsd", "score", "right", "change"),
    measure="nmsd",
    lower_is_better=True,
)
