"""What consensus-graph calls its numbers; nothing else is loaded for it."""

from __future__ import annotations

from trellis.apps.pages.wording import Wording

WORDING = Wording(
    labels={
        "noise": "noise of the consensus, over its mean entry",
        "held-out": "held-out signals that the consensus explains",
        "held-out-noise": "noise in the share of signals explained",
        "helped": "clients whom the consensus helped",
        "helped-noise": "noise in the share of clients helped",
        "alone-mcc": "MCC, had clients learnt alone",
    },
    headline=("mcc", "alone-mcc", "consensus-mcc", "re", "consensus-re", "consensus-edges"),
    measure="mcc",
)
