"""The servers' steps of cluster-admm [GG]: from the clients' models to one model a cluster.

S servers on a graph, Q clusters that cut across them; client k belongs to server s and cluster q.
In a round the scheduled clients return w_k, the solution of

    min_w f_k(w) - <phi_k, w> + rho/2 |w - w_{s,q}|^2,   f_k = loss_k / D_k + share_k R          (4)

for which they need no more than v_k = phi_k + rho w_{s,q}. The server holds the duals phi_k.

``paper`` mixing, for every server and cluster:

    wt_{s,q} = mean over scheduled k of w_k - phi_k / rho         own clients                 (8)
    wh_{s,q} = mean over s and its neighbours of wt_{p,q}         other servers               (9)
    w_{s,q}  = (1 - tau) wh_{s,q} + tau / (Q - 1) sum_{r != q} wh_{s,r}    other clusters     (10)
    phi_k   += rho (w_{s,q} - w_k)                                scheduled clients           (5)

A pair (s, q) without a scheduled client keeps its model as wt. At tau = 0 a fixed point has
w_k = w_{s,q} and grad f_k(w_{s,q}) = phi_k, so with g_{s,q} the mean gradient of its clients

    w = M (w - g(w) / rho),    M = (A + I) with rows divided by their sums:

the optimum of (2), with servers counted alike, only where all servers are neighbours. On other
graphs it is off, and as rho grows it tends to the optimum with servers weighted by their number of
neighbours plus one, M's stationary weights.

``exact`` mixing is ADMM on the problem with all its constraints,

    min sum_k f_k(w_k)   s.t.  w_k = u_s  for s's clients k in cluster q,
                               u_s = z_sp = u_p  for neighbours s, p,

the w_k and the z in one block, the u in the other, which converges on every connected graph. The
z_sp and the two duals of an edge eliminate as usual, to one dual psi_s a server and cluster:

    u_s = [ sum_k (w_k - phi_k / rho) + 1/2 sum_p (u_s + u_p) - psi_s / rho ] / (n_s + deg_s)
    phi_k += rho (u_s - w_k),      psi_s += rho/2 sum_p (u_s - u_p)

over s's clients k (their last w_k where they were not scheduled) and neighbours p; n_s is the
number of s's clients in the cluster. In a fixed point neighbours agree, hence all servers, and
w_k = u; the first line leaves sum_k phi_k + psi_s = 0, and the psi_s sum to zero over servers, so
the gradients of all the cluster's clients sum to zero: the optimum of (1), with R counted once
where share_k = 1 / (clients of the cluster). Servers without a client of the cluster pass on what
their neighbours say. With tau > 0 the term tau sum_r |u_q - u_r|^2 of (1) enters the first line,
1/S of it at every server, with the other clusters' models of the round before.

Arrays: ``models`` (S, Q, d), ``sent`` = w_k - phi_k / rho (n, d), A : (S, S) bool adjacency.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Adjacency = NDArray[np.bool_]


def aggregate(
    sent: Array,
    servers: Places,
    clusters: Places,
    models: Array,
    centres: Callable[[Array, Places, Array], Array] | None = None,
) -> Array:
    """Return wt (S, Q, d): (8), or the last model where nobody sent anything.

    ``centres`` makes another statistic than the mean of the rows of every place, from the rows,
    their places and what a place has now.
    """
    if centres is not None:
        place, now = servers * models.shape[1] + clusters, models.reshape(-1, models.shape[2])
        return centres(sent, place, now).reshape(models.shape)
    sums, counts = _gathered(sent, servers, clusters, models.shape)
    mean = sums / np.maximum(counts, 1.0)[..., None]
    return np.where(counts[..., None] > 0.0, mean, models)


def over_servers(aggregated: Array, adjacency: Adjacency) -> Array:
    """Return wh (S, Q, d): the mean over every server's neighbourhood, itself included, (9)."""
    return np.einsum("sp,pqd->sqd", neighbourhood_means(adjacency), aggregated)


def neighbourhood_means(adjacency: Adjacency) -> Array:
    """Return M = (A + I) with rows divided by their sums."""
    weights = adjacency.astype(np.float64) + np.eye(len(adjacency))
    return weights / weights.sum(axis=1, keepdims=True)


def over_clusters(models: Array, tau: float) -> Array:
    """Return every cluster's model drawn to the mean of the others, (10)."""
    count = models.shape[1]
    if count == 1 or tau == 0.0:
        return models.copy()
    others = (models.sum(axis=1, keepdims=True) - models) / (count - 1)
    return (1.0 - tau) * models + tau * others


def exact_update(
    sent: Array,
    servers: Places,
    clusters: Places,
    models: Array,
    server_duals: Array,
    adjacency: Adjacency,
    rho: float,
    tau: float = 0.0,
) -> tuple[Array, Array]:
    """Return the next u and psi, both (S, Q, d), from all clients' last w_k - phi_k / rho."""
    sums, counts = _gathered(sent, servers, clusters, models.shape)
    links = adjacency.astype(np.float64)
    degree = links.sum(axis=1)[:, None, None]
    neighbours = np.einsum("sp,pqd->sqd", links, models)
    total = sums + 0.5 * (degree * models + neighbours) - server_duals / rho
    weight = counts[..., None] + degree
    if tau > 0.0 and models.shape[1] > 1:
        pull = 2.0 * tau / (rho * len(models))
        total = total + pull * (models.sum(axis=1, keepdims=True) - models)
        weight = weight + pull * (models.shape[1] - 1)
    # One server without a client of a cluster has nothing to learn it from.
    found = np.where(weight > 0.0, total / np.maximum(weight, 1e-300), models)
    difference = degree * found - np.einsum("sp,pqd->sqd", links, found)
    return found, server_duals + 0.5 * rho * difference


def _gathered(
    sent: Array, servers: Places, clusters: Places, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return the sums (S, Q, d) and counts (S, Q) of what clients sent."""
    place = servers * shape[1] + clusters
    counts = np.bincount(place, minlength=shape[0] * shape[1]).astype(np.float64)
    sums = np.zeros((shape[0] * shape[1], shape[2]))
    np.add.at(sums, place, sent)
    return sums.reshape(shape), counts.reshape(shape[:2])
