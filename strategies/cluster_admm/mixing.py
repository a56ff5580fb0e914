"""A server's steps of cluster-admm [GG]: from its clients' models to one model a cluster.

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

Every function is of one server: what it has from its own clients and what its neighbours told it.
Arrays: ``model`` (Q, d), ``sent`` = w_k - phi_k / rho (n, d) of its own clients, ``clusters`` (n,)
theirs. `server` says what a server remembers and tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.intp]
Adjacency = NDArray[np.bool_]
Centres = Callable[[Array, Places, Array], Array]


def aggregate(sent: Array, clusters: Places, model: Array, centres: Centres | None = None) -> Array:
    """Return wt_s (Q, d): (8), or the last model where nobody sent anything.

    ``centres`` makes another statistic than the mean of the rows of every cluster, from the rows,
    their clusters and what a cluster has now.
    """
    if centres is not None:
        return centres(sent, clusters, model)
    sums, counts = gathered(sent, clusters, model.shape)
    mean = sums / np.maximum(counts, 1.0)[:, None]
    return np.where(counts[:, None] > 0.0, mean, model)


def over_servers(own: Array, heard: Iterable[Array]) -> Array:
    """Return wh_s (Q, d): the mean over itself and the neighbours that were heard, (9)."""
    total, count = own, 1
    for told in heard:
        total = total + told
        count += 1
    return total / count


def neighbourhood_means(adjacency: Adjacency) -> Array:
    """Return M = (A + I) with rows divided by their sums: (9) of all servers at once."""
    weights = adjacency.astype(np.float64) + np.eye(len(adjacency))
    return weights / weights.sum(axis=1, keepdims=True)


def over_clusters(model: Array, tau: float) -> Array:
    """Return every cluster's model drawn to the mean of the others, (10)."""
    count = len(model)
    if count == 1 or tau == 0.0:
        return model.copy()
    others = (model.sum(axis=0) - model) / (count - 1)
    return (1.0 - tau) * model + tau * others


def exact_model(
    sent: Array,
    clusters: Places,
    model: Array,
    dual: Array,
    middles: Iterable[Array],
    rho: float,
    pull: float = 0.0,
) -> Array:
    """Return the next u_s (Q, d) from all own clients' last w_k - phi_k / rho.

    Parameters
    ----------
    model, dual : u_s and psi_s
    middles : z_sp = (u_s + u_p) / 2 of the last exchange with every neighbour p
    pull : 2 tau / (rho S), how strongly its other clusters draw a model
    """
    total, counts = gathered(sent, clusters, model.shape)
    weight = counts[:, None]
    degree = 0
    for middle in middles:
        total += middle
        degree += 1
    total -= dual / rho
    if degree:
        weight = weight + degree
    if pull > 0.0 and len(model) > 1:
        total += pull * (model.sum(axis=0) - model)
        weight = weight + pull * (len(model) - 1)
    # One server without a client of a cluster has nothing to learn it from.
    return np.where(weight > 0.0, total / np.maximum(weight, 1e-300), model)


def edge_step(own: Array, heard: Array, rho: float) -> Array:
    """Return what an exchange of u_s and u_p adds to the edge's part of psi_s; p has minus that."""
    return (0.5 * rho) * (own - heard)


def gathered(sent: Array, clusters: Places, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the sums (Q, d) and counts (Q,) of what clients sent."""
    sums = np.zeros(shape)
    np.add.at(sums, clusters, sent)
    return sums, np.bincount(clusters, minlength=shape[0]).astype(np.float64)
