"""Results of runs as large as a report must bear, made without learning anything.

Arrays, clients, rounds, scores and ledgers are as runs leave them, in shape and kind; their numbers
are drawn. Whoever reports on them works as hard as on a run that took hours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.evaluation.measures import ALONE, THIS
from trellis.apps.common.results import RunResult
from trellis.apps.common.settings import config_class

Array = NDArray[np.float64]
_ROUNDS = 60
_RECORDS = 40
_MOST_TRUE = 20_000_000  # entries of true matrices; larger ones are left out, for their memory


def consensus_graph(clients: int, nodes: int, *, privacy: str = "none") -> RunResult:
    """Return a run of consensus-graph: sparse graphs around a consensus, and the true ones."""
    rng = np.random.default_rng(1)
    pairs = nodes * (nodes - 1) // 2
    consensus = rng.random(pairs) * (rng.random(pairs) < 4.0 / nodes)
    weights = np.empty((clients, pairs))
    for own in weights:  # a row at a time: two such arrays are all that fits some machines
        own[:] = np.maximum(consensus + 0.02 * rng.standard_normal(pairs), 0.0)
    truth = np.where(weights > 0.2 * weights.max(axis=1, keepdims=True), weights, 0.0)
    gamma = 1.0 / np.array([np.linalg.norm(own - consensus) for own in weights])
    arrays = {"weights": weights, "consensus": consensus, "gamma": gamma, "truth": truth}
    arrays["truth_consensus"] = np.where(consensus > 0.1, consensus, 0.0)
    settings = {"clients": clients, "nodes": nodes, "privacy": privacy}
    columns = ("change", "objective", "mcc", "mcc-loose", "re", "consensus-mcc", "consensus-re")
    return _run("consensus-graph", settings, arrays, nodes, columns, rng)


def joint_precision(clients: int, variables: int, *, privacy: str = "none") -> RunResult:
    """Return a run of joint-precision, with a path."""
    rng = np.random.default_rng(2)
    shape = (clients, variables, variables)
    sparse, partial = np.zeros(shape), np.zeros(shape)
    ends = np.triu_indices(variables, 1)
    shared = rng.random(ends[0].size) < 3.0 / variables
    for own, correlations in zip(sparse, partial, strict=True):
        kept = np.flatnonzero(shared | (rng.random(shared.size) < 2.0 / variables))
        values = rng.uniform(0.1, 0.6, kept.size) * rng.choice([-1.0, 1.0], kept.size)
        a, b = ends[0][kept], ends[1][kept]
        own[a, b] = own[b, a] = values
        correlations[a, b] = correlations[b, a] = -values
        np.fill_diagonal(own, 1.0)
    count = 15
    arrays: dict[str, NDArray[Any]] = {"precision": sparse, "sparse": sparse, "partial": partial}
    arrays |= {
        "smallest_eigenvalue": rng.uniform(-0.01, 0.1, clients),
        "blocks": np.arange(variables) * 6 // variables,
        "answered": np.full(clients, _ROUNDS),
        "path_lambda1": np.geomspace(1.0, 0.01, count),
        "path_lambda2": np.geomspace(1.0, 0.01, count),
        "path_gap": np.full(count, 1e-7),
        "path_edges": np.sort(rng.integers(0, 900, (count, clients)), axis=0),
        "path_ebic": rng.random(count),
        "path_chosen": np.array(7),
    }
    if clients * variables**2 < _MOST_TRUE:
        arrays["truth"] = np.where(rng.random(shape[1:]) < 0.9, 1.0, 0.0) * sparse
        arrays["truth"][:, np.arange(variables), np.arange(variables)] = 1.0
    settings = {"clients": clients, "variables": variables, "privacy": privacy, "blocks": 1}
    columns = ("gap", "change", "tpr", "fpr", "mcc", "edges", "objective")
    return _run("joint-precision", settings, arrays, variables, columns, rng)


def server_graph(clients: int, servers: int, *, privacy: str = "none") -> RunResult:
    """Return a run of server-graph on a ring with chords."""
    rng = np.random.default_rng(3)
    features = 20
    weights = _ring(servers) / 5.0
    np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
    truth = rng.standard_normal(features)
    models = truth + 0.1 * rng.standard_normal((servers, features))
    arrays = {
        "models": models,
        "centroid": models.mean(axis=0),
        "combination": weights,
        "homes": np.arange(clients) * servers // clients,
        "alive": np.ones(servers, dtype=bool),
        "truth": truth,
    }
    settings = {"clients": clients, "servers": servers, "privacy": privacy, "features": features}
    columns: tuple[str, ...] = ("change", "disagreement", "servers", "between-servers")
    columns = (*columns, "msd", "msd-servers")
    if privacy == "dp":
        columns = (*columns, "epsilon")
    return _run("server-graph", settings, arrays, features, columns, rng)


def cluster_admm(clients: int, servers: int, *, privacy: str = "none") -> RunResult:
    """Return a run of cluster-admm with three clusters; with privacy there are no servers."""
    rng = np.random.default_rng(4)
    features, clusters = 60, 3
    apart = privacy == "none"
    servers = servers if apart else 1
    models = rng.standard_normal((servers, clusters, features))
    homes, groups = np.arange(clients) * servers // clients, np.arange(clients) % clusters
    arrays = {
        "models": models,
        "clients": models[homes, groups],
        "homes": homes,
        "clusters": groups,
        "truth": models[0],
        "true_clusters": groups,
    }
    settings = {"clients": clients, "privacy": privacy, "features": features}
    columns: tuple[str, ...] = ("change", "nmsd")
    if apart:
        arrays["adjacency"] = _ring(servers).astype(bool)
        settings["servers"] = servers
        columns = ("change", "tau", "nmsd-servers", "nmsd")
    return _run("cluster-admm", settings, arrays, features, columns, rng)


def gromov_wasserstein(clients: int, graphs: int, *, privacy: str = "none") -> RunResult:
    """Return a run of gromov-wasserstein: distances between so many graphs of all clients."""
    rng = np.random.default_rng(5)
    labels = np.arange(graphs) % 3
    points = rng.standard_normal((graphs, 4)) + 2.0 * labels[:, None]
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    arrays = {
        "owner": np.arange(graphs) * clients // graphs,
        "sizes": rng.integers(10, 60, graphs),
        "labels": labels,
        "codes": np.zeros((10, 16)),
        "distances": (distances + distances.T) / 2.0,
        "spectral-clusters": labels,
        "anomaly": distances.mean(axis=1),
    }
    settings = {"clients": clients, "privacy": privacy, "task": "graph", "model": "gin"}
    columns = ("loss", "train-accuracy", "validation-accuracy", "test-accuracy")
    made = _run("gromov-wasserstein", settings, arrays, 0, columns, rng)
    made.headline = {"svm-accuracy": 0.8, "svm-from-sizes": 0.5, "majority": 0.34}
    return made


MAKERS: dict[str, Callable[..., RunResult]] = {
    "consensus-graph": consensus_graph,
    "joint-precision": joint_precision,
    "server-graph": server_graph,
    "cluster-admm": cluster_admm,
    "gromov-wasserstein": gromov_wasserstein,
}


def _ring(count: int) -> Array:
    """Return a ring with chords: every node has four neighbours."""
    joined = np.zeros((count, count))
    at = np.arange(count)
    for step in (1, 7):
        joined[at, (at + step) % count] = joined[(at + step) % count, at] = 1.0
    np.fill_diagonal(joined, 0.0)
    return joined


def _run(
    study: str,
    settings: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    variables: int,
    columns: tuple[str, ...],
    rng: np.random.Generator,
) -> RunResult:
    count = int(settings["clients"])
    names = [f"ward-{k + 1}" for k in range(count)]
    falling = np.exp(-np.linspace(0.0, 5.0, _ROUNDS))
    made = RunResult(
        study=study,
        seed=1,
        engine="local",
        config=config_class(study).from_settings(settings).settings(),
        data="/data/wards",  # own data: nothing is made again from the seed
        arrays=arrays,
        metrics=[
            {"round": t + 1.0, "clients": float(count), "seconds": 0.1}
            | {name: float(falling[t] * (1.0 + k)) for k, name in enumerate(columns)}
            for t in range(_ROUNDS)
        ],
        clients=[
            {"name": name, "partition": k, "count": 50 + k % 90, "rounds": _ROUNDS, "failures": 0}
            for k, name in enumerate(names)
        ],
        variables=[f"variable {k + 1}" for k in range(variables)],
        status="completed",
        settled=True,
        seconds=6.0,
        started="2025-01-01T00:00:00Z",
        scores=_scores(names, rng),
    )
    if settings["privacy"] == "dp":
        made.ledger = _ledger(names)
        made.scores = {}
    return made


def _scores(names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    ours = rng.uniform(0.6, 0.9, len(names))
    alone = ours - rng.normal(0.05, 0.05, len(names))
    return {
        "measures": ["log likelihood", "share explained"],
        "main": "log likelihood",
        "lower": [],
        "mean": {THIS: [float(ours.mean()), 0.5], ALONE: [float(alone.mean()), 0.4]},
        "clients": [
            {"name": name, "count": _RECORDS, "rows": {THIS: [a, 0.5], ALONE: [b, 0.4]}}
            for name, a, b in zip(names, ours.tolist(), alone.tolist(), strict=True)
        ],
    }


def _ledger(names: list[str]) -> dict[str, Any]:
    """Return a ledger with a release a round for every client, as noise in sums leaves it."""
    event = {"mechanism": "summed-gaussian", "what": "clipped gradients", "sensitivity": 0.1}
    return {
        "mode": "dp",
        "claim": "noise in every sum",
        "neighbouring": "one record replaced",
        "adversary": "the server",
        "not_covered": "the number of records",
        "epsilon": 1.0,
        "delta": 1e-5,
        "clients": [
            {
                "name": name,
                "epsilon": 1.0 - 1e-4 * (k % 50),
                "delta": 1e-5,
                "rho": 0.03,
                "events": [{**event, "round": t, "sigma": 0.2 + 0.001 * t} for t in range(_ROUNDS)],
            }
            for k, name in enumerate(names)
        ],
    }
