"""What gromov-wasserstein calls its numbers; nothing else is loaded for it."""

from __future__ import annotations

from trellis.apps.pages.wording import Wording

SPLITS = ("train", "validation", "test")
HOME = {
    "kept": "the model that is kept",
    "shared": "the shared weights as they are",
    "tuned": "trained on from the shared weights",
    "alone": "learned alone",
}


def _labels() -> dict[str, str]:
    found = {
        "graphs": "graphs",
        "loss": "training loss",
        "released-graphs": "graphs whose embeddings were released",
        "majority": "share of the commonest class",
        "spectral-ari": "spectral clusters, adjusted Rand index",
        "spectral-purity": "spectral clusters, purity",
        "kmeans-ari": "k-means with barycentres, adjusted Rand index",
        "kmeans-purity": "k-means with barycentres, purity",
        "medoids-ari": "clusters around medoids, adjusted Rand index",
        "medoids-purity": "clusters around medoids, purity",
        "pairs-solved": "share of pairs that were needed and solved",
        "epsilon": "epsilon of the run, by the largest graph",
        "noise": "noise of the mean gradient, beside its bound",
        "held-out-accuracy": "accuracy of the shared model, held out, with noise",
        "held-out-noise": "standard deviation of that noise",
    }
    found |= {f"home-{name}-accuracy": f"accuracy at home, {what}" for name, what in HOME.items()}
    found |= {f"{name}-accuracy": f"accuracy of the shared model, {name} split" for name in SPLITS}
    classifiers = {"svm": "SVM", "knn5": "5 nearest graphs", "knn20": "20 nearest graphs"}
    for name, title in classifiers.items():
        found[f"{name}-accuracy"] = f"accuracy by distances, {title}"
        found[f"{name}-from-sizes"] = f"control: numbers of nodes alone, {title}"
        found[f"{name}-from-constant"] = f"control: constant embedding, {title}"
    return found


# No accuracy goes into an index without its controls.
WORDING = Wording(
    labels=_labels(),
    headline=(
        *("svm-accuracy", "svm-from-sizes", "svm-from-constant", "majority", "test-accuracy"),
        *("held-out-accuracy", "home-kept-accuracy", "home-alone-accuracy"),
    ),
    measure="svm-accuracy",
)
