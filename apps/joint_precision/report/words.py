"""What joint-precision calls its numbers; nothing else is loaded for it."""

from __future__ import annotations

from trellis.apps.pages.wording import Wording

WORDING = Wording(
    labels={
        "edges": "edges a client",
        "common-edges": "edges common to all",
        "tpr": "true edges found (TPR)",
        "fpr": "false edges found (FPR)",
        "mcc": "clients' MCC (edge: not zero)",
        "ebic": "extended BIC",
        "auc": "AUC of the path",
        "aupr": "AUPR of the path",
        "alone-mcc": "MCC of every client alone",
        "consensus-edges": "edges of the consensus",
        "consensus-lambda": "lambda of the consensus",
        "consensus-auc": "AUC of the consensus (edges common to all)",
        "noise-of-tau": "noise on a tau of the consensus",
        "mean-weight": "share of a sample that counts, mean",
        "using-consensus": "share of clients that use the consensus",
        "held-out-accuracy": "held-out signs predicted",
        "held-out-noise": "noise on the held-out signs",
        "helped": "clients that say the consensus helps",
        "helped-noise": "noise on the share of clients helped",
    },
    headline=("edges", "common-edges", "consensus-edges", "gap", "tpr", "fpr", "mcc"),
    measure="mcc",
)
