# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Gromov-Wasserstein of many pairs as one compiled loop: Frank-Wolfe on a simplex that goes on.

The problem, its start p q' and its rules for stopping are those of `pair`; so are its vertices,
wherever a transport problem has one solution only. What differs is how a problem is solved:

- A vertex of the transport polytope is a **spanning tree** of the rows and columns with a flow on
  each of its n + m - 1 edges. All problems of a descent share the marginals, so that the last tree
  is feasible for the next costs: the simplex starts there and is done after few pivots, mostly.
- Flows are whole numbers, of grains that all weights are multiples of, and trees are strongly
  feasible [Cu]_: equal weights, where many pivots move nothing, cannot make it go in circles.
- Successive vertices differ in some rows only: C1 T C2 is brought up to date by those.
- Where costs tie, a tree that is optimal already hides the other solutions. There the descent goes
  on from a fresh tree, and ends where that leads no lower either.

Costs that a whole row or column shares move no solution, so that -2 C1 T C2 stands for the
gradient.

Nodes of a tree are the rows 0 .. n - 1 and the columns n .. n + m - 1. It is a tuple of arrays
(n + m,): parent, flow on the edge to it, first child, next and last sibling, depth, potential, and
a stack for walks.

numba compiles this where it is first used on a machine and keeps the result beside this file, or
in the user's cache; so whoever imports this module has many pairs to solve (see `many`). All of it
is in one file, as numba's cache looks at the file of the function that is called and at no other.

.. [Cu] W. H. Cunningham, A network simplex method, Mathematical Programming 11, 1976.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_RELATIVE, _ABSOLUTE, _MOST_STEPS = 1e-9, 1e-9, 10_000  # as in `pair`
_SECOND = 1e-7  # as in `pair`
_ZERO = 1e-12  # of the largest cost: a reduced cost that is none
_FRESH = 64  # steps after which a product is computed anew
_FINEST = 2**50  # grains in a weight of one, where weights have no common one
_MOST_NODES = 5_000  # in a graph whose uniform weights are recognised
GAVE_UP = -1.0  # in place of a value


# For what compiled functions alone call: no way in from Python, which takes time to compile.
_INSIDE: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inside: Any = njit(**_INSIDE)
_inside_in_any_order: Any = njit(fastmath=True, **_INSIDE)  # sums may be reordered


def _kept(function: Any) -> Any:
    """Compile, and keep that on disk where there is a folder to write to."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither this folder nor the user's cache can be written
        return njit(nogil=True)(function)


@_inside
def _set(matrix, value):  # loops are compiled in half the time of slices
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = value


@_inside
def _copy(source, matrix):
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = source[i, j]


@_inside
def _attach(tree, v, p):
    parent, child, after, before = tree[0], tree[2], tree[3], tree[4]
    parent[v] = p
    before[v] = -1
    after[v] = child[p]
    if child[p] >= 0:
        before[child[p]] = v
    child[p] = v


@_inside
def _detach(tree, v):
    parent, child, after, before = tree[0], tree[2], tree[3], tree[4]
    if before[v] >= 0:
        after[before[v]] = after[v]
    else:
        child[parent[v]] = after[v]
    if after[v] >= 0:
        before[after[v]] = before[v]


@_inside
def _staircase(tree, a, b, order_x, order_y):
    """Make the tree of the coupling that is monotone in two orders; return its root.

    Where a row and a column end together, an edge without flow leads on from the row. It points to
    the root, the last column, as all such edges do in a strongly feasible tree.
    """
    parent, flow, child = tree[0], tree[1], tree[2]
    n, m = a.size, b.size
    for v in range(n + m):
        child[v] = -1
    i = j = 0
    left_a, left_b = a[order_x[0]], b[order_y[0]]
    while i < n:
        row, column = order_x[i], n + order_y[j]
        moved = min(left_a, left_b)
        left_a -= moved
        left_b -= moved
        if j < m - 1 and left_b == 0.0:
            flow[column] = moved
            _attach(tree, column, row)
            j += 1
            left_b = b[order_y[j]]
        else:
            flow[row] = moved
            _attach(tree, row, column)
            i += 1
            left_a = a[order_x[min(i, n - 1)]]
    root = n + order_y[m - 1]
    parent[root] = -1
    return root


@_inside
def _walk(tree, top, n, costs, rows, columns):
    """Visit a subtree: depths anew, potentials shifted; those of a whole tree anew as well."""
    parent, _, child, after, _, depth, potential, stack = tree
    whole = parent[top] < 0
    stack[0] = top
    count = 1
    while count:
        count -= 1
        v = stack[count]
        p = parent[v]
        if p < 0:
            depth[v], potential[v] = 0, 0.0
        else:
            depth[v] = depth[p] + 1
            if whole:
                potential[v] = (costs[v, p - n] if v < n else costs[p, v - n]) - potential[p]
            else:
                potential[v] += rows if v < n else columns
        w = child[v]
        while w >= 0:
            stack[count] = w
            count += 1
            w = after[w]


@_inside
def _any_below(line, potentials, bound):
    """Return whether an edge of a row has reduced costs below a bound."""
    # In a form that LLVM turns into vector instructions: the least one would not be.
    found = np.int64(0)
    for j in range(line.size):
        found |= np.int64(line[j] - potentials[j] < bound)
    return found != 0


@_inside
def _simplex(tree, root, costs):
    """Pivot a feasible tree until it is optimal; return the zero that was used, or `GAVE_UP`."""
    parent, flow, _, _, _, depth, potential, _ = tree
    n, m = costs.shape
    largest = 0.0
    for i in range(n):
        for j in range(m):
            largest = max(largest, abs(costs[i, j]))
    zero = _ZERO * largest
    _walk(tree, root, n, costs, 0.0, 0.0)
    columns = potential[n:]
    most = 1000 + 100 * (n + m)
    passed = row = 0
    while passed < n:
        # Pricing: the best edge of a row, one row after the other.
        line = costs[row]
        if not _any_below(line, columns, potential[row] - zero):
            passed += 1
            row = row + 1 if row + 1 < n else 0
            continue
        column, least = 0, line[0] - columns[0]
        for j in range(1, m):
            if line[j] - columns[j] < least:
                column, least = j, line[j] - columns[j]
        reduced = least - potential[row]
        # The cycle leads up from the row and up from the column, to where these meet. Of the edges
        # that are the first without flow the last leaves, seen along the cycle from that point.
        u, w = row, n + column
        theta, leaving, by_row = np.inf, -1, True
        while u != w:
            if depth[u] >= depth[w]:
                if u < n and flow[u] < theta:
                    theta, leaving, by_row = flow[u], u, True
                u = parent[u]
            else:
                if w >= n and flow[w] <= theta:
                    theta, leaving, by_row = flow[w], w, False
                w = parent[w]
        if theta > 0.0:
            meet = u
            u, w = row, n + column
            while u != meet:
                flow[u] += -theta if u < n else theta
                u = parent[u]
            while w != meet:
                flow[w] += -theta if w >= n else theta
                w = parent[w]
        # What was cut off hangs under the other end of the new edge from here on.
        v, p = (row, n + column) if by_row else (n + column, row)
        top, moved = v, theta
        while True:
            above, was = parent[v], flow[v]
            _detach(tree, v)
            _attach(tree, v, p)
            flow[v] = moved
            if v == leaving:
                break
            p, moved, v = v, was, above
        shift = reduced if by_row else -reduced
        _walk(tree, top, n, costs, shift, -shift)
        passed = 0
        row = row + 1 if row + 1 < n else 0
        most -= 1
        if most < 0:
            return GAVE_UP
    return zero


@_inside
def _ties(tree, costs, zero):
    """Return whether other vertices may be as good as the tree's: more zeros than it has edges."""
    potential = tree[6]
    n, m = costs.shape
    zeros = np.int64(0)
    for i in range(n):
        for j in range(m):
            zeros += np.int64(costs[i, j] - potential[n + j] <= potential[i] + 10.0 * zero)
    return zeros > n + m - 1


@_inside_in_any_order
def _multiply(c1, change, c2, touched, some, result):
    """Set result = C1 change (2 C2); return how many rows of ``change`` are not all zero."""
    n, m = change.shape
    count = 0
    for i in range(n):
        empty = True
        for j in range(m):
            f = 2.0 * change[i, j]
            if f != 0.0:
                if empty:
                    empty = False
                    for k in range(m):
                        some[count, k] = f * c2[j, k]
                else:
                    for k in range(m):
                        some[count, k] += f * c2[j, k]
        if not empty:
            touched[count] = i
            count += 1
    _set(result, 0.0)
    full = count // 4 * 4
    for t in range(0, full, 4):  # four at once: a quarter of the loads and stores
        s0, s1, s2, s3 = some[t], some[t + 1], some[t + 2], some[t + 3]
        for k in range(n):
            line, row = c1[k], result[k]
            f0, f1 = line[touched[t]], line[touched[t + 1]]
            f2, f3 = line[touched[t + 2]], line[touched[t + 3]]
            for j in range(m):
                row[j] += f0 * s0[j] + f1 * s1[j] + f2 * s2[j] + f3 * s3[j]
    for t in range(full, count):
        s0 = some[t]
        for k in range(n):
            f0, row = c1[k, touched[t]], result[k]
            for j in range(m):
                row[j] += f0 * s0[j]
    return count


@_inside
def _add(parent, flow, n, grain, plan):
    """Add ``grain`` times a tree's flows to a plan."""
    for v in range(parent.size):
        p = parent[v]
        if p >= 0:
            if v < n:
                plan[v, p - n] += grain * flow[v]
            else:
                plan[p, v - n] += grain * flow[v]


@_inside
def _inner(parent, flow, n, grain, matrix):
    """Return <matrix, a tree's plan>."""
    total = 0.0
    for v in range(parent.size):
        p = parent[v]
        if p >= 0:
            total += flow[v] * (matrix[v, p - n] if v < n else matrix[p, v - n])
    return grain * total


@_inside
def _descend(x, y, a, b, grain, linear, alpha, order_x, order_y, as_is, from_tree, result):
    """Return the value of a local minimum, or `GAVE_UP`.

    Parameters
    ----------
    x, y : of each space its distances (n, n), eccentricity, squares and weights (n,)
    a, b : the weights in grains
    grain : what one weighs
    linear : (n, m), (1 - alpha) times the costs between features; (0, 0) without
    alpha : weight of the structure
    order_x, order_y : of the staircase
    as_is : whether the staircase is the first vertex after p q': no eccentricities tie
    from_tree : whether to start at the staircase, and not at p q'
    result : (n, m) for the plan, or (0, 0) where nobody wants it
    """
    c1, e1, s1, p = x
    c2, e2, s2, q = y
    n, m = p.size, q.size
    fused = linear.size > 0
    nodes = np.empty((6, n + m), np.int64)
    numbers = np.empty((2, n + m))
    tree = (nodes[0], numbers[0], nodes[1], nodes[2], nodes[3], nodes[4], numbers[1], nodes[5])
    parent, flow = tree[0], tree[1]
    costs, change, moved_product = np.empty((n, m)), np.zeros((n, m)), np.empty((n, m))
    plan, product, vertex_product = np.empty((n, m)), np.empty((n, m)), np.empty((n, m))
    some, touched = np.empty((n, m)), np.empty(n, np.int64)

    constant = inner = price = vertex_price = zero = 0.0
    for i in range(n):
        constant += p[i] * s1[i]
    for j in range(m):
        constant += q[j] * s2[j]
    for i in range(n):
        for j in range(m):
            vertex_product[i, j] = 0.0
            plan[i, j], product[i, j] = p[i] * q[j], 2.0 * e1[i] * e2[j]
            inner += plan[i, j] * product[i, j]
            if fused:
                price += plan[i, j] * linear[i, j]
    value = alpha * (constant - inner) + price
    at_vertex, fresh = False, False
    old_parent, old_flow = np.empty(n + m, np.int64), np.empty(n + m)
    root = 0
    for step in range(_MOST_STEPS):
        for v in range(n + m):
            old_parent[v], old_flow[v] = parent[v], flow[v]
        for i in range(n):
            for j in range(m):
                if fused:
                    source = vertex_product[i, j] if at_vertex else product[i, j]
                    costs[i, j] = linear[i, j] - 2.0 * alpha * source
                elif step:
                    costs[i, j] = -vertex_product[i, j] if at_vertex else -product[i, j]
                else:
                    second = c1[i, n - 1] - c2[j, m - 1]
                    costs[i, j] = _SECOND * second * second - e1[i] * e2[j]
        if fresh or step == 0:
            root = _staircase(tree, a, b, order_x, order_y)
        if step or not (as_is or from_tree):
            zero = _simplex(tree, root, costs)
            if zero == GAVE_UP:
                return GAVE_UP
        anew = step % _FRESH == 0
        _set(change, 0.0)
        _add(parent, flow, n, grain, change)
        if not anew:
            _add(old_parent, old_flow, n, -grain, change)
        rows = _multiply(c1, change, c2, touched, some, moved_product)
        if rows == 0 and at_vertex:
            if fresh or not _ties(tree, costs, zero):
                break
            fresh = True
            continue
        for i in range(n):
            for j in range(m):
                if anew:
                    moved_product[i, j] -= vertex_product[i, j]
                vertex_product[i, j] += moved_product[i, j]
        vertex_inner = _inner(parent, flow, n, grain, vertex_product)
        if fused:
            vertex_price = _inner(parent, flow, n, grain, linear)
        if at_vertex:
            cross = _inner(old_parent, old_flow, n, grain, vertex_product)
        else:
            cross = 0.0
            for i in range(n):
                for j in range(m):
                    cross += vertex_product[i, j] * plan[i, j]
        # On T + s (V - T) the objective is value + slope s + curvature s^2.
        curvature = -alpha * (vertex_inner - 2.0 * cross + inner)
        slope = vertex_price - price - 2.0 * alpha * (cross - inner)
        if from_tree and step == 0:
            s = 1.0
        elif curvature > 0.0:
            s = min(1.0, max(0.0, -slope / (2.0 * curvature)))
        else:
            s = 1.0 if curvature + slope < 0.0 else 0.0
        if s == 0.0:
            for v in range(n + m):
                parent[v], flow[v] = old_parent[v], old_flow[v]
            break
        if s == 1.0:
            at_vertex, inner, price = True, vertex_inner, vertex_price
        else:
            if at_vertex:
                for i in range(n):
                    for j in range(m):
                        plan[i, j] = 0.0
                        product[i, j] = vertex_product[i, j] - moved_product[i, j]
                _add(old_parent, old_flow, n, grain, plan)
                at_vertex = False
            for i in range(n):
                for j in range(m):
                    plan[i, j] *= 1.0 - s
            _add(parent, flow, n, s * grain, plan)
            inner = 0.0
            for i in range(n):
                for j in range(m):
                    product[i, j] += s * (vertex_product[i, j] - product[i, j])
                    inner += product[i, j] * plan[i, j]
            price += s * (vertex_price - price)
        new_value = alpha * (constant - inner) + price
        moved, value = abs(new_value - value), new_value
        if from_tree and step == 0:
            continue
        if moved < _ABSOLUTE or moved < _RELATIVE * abs(value):
            break
    if result.size:
        if at_vertex:
            _set(plan, 0.0)
            _add(parent, flow, n, grain, plan)
        _copy(plan, result)
    return max(value, 0.0)


@_inside
def _whole(weights):
    """Return the least N for which all weights are multiples of 1 / N; 0 where there is none."""
    for whole in range(weights.size, _MOST_NODES + 1):
        total = 0.0
        for weight in weights:
            count = np.rint(weight * whole)
            if count < 1.0 or abs(weight * whole - count) > 1e-9:
                break
            total += count
        if total == whole:
            return whole
    return 0


@_inside
def _in_grains(weights, whole, grains):
    """Return weights as whole numbers that add up to ``grains``."""
    found = np.empty(weights.size)
    total, heaviest = 0.0, 0
    for i in range(weights.size):
        if whole:
            found[i] = np.rint(weights[i] * whole) * (grains // whole)
        else:  # 2^-50 and less is lost, as by any rounding of numbers of that size
            found[i] = max(1.0, np.rint(weights[i] * grains))
        total += found[i]
        heaviest = i if found[i] > found[heaviest] else heaviest
    found[heaviest] += grains - total
    return found


@_kept
def solve_pairs(pairs, packed, alpha, restarts, kinds, orders, plans):
    """Return the values of pairs of packed spaces, `GAVE_UP` for what another solver has to do.

    Parameters
    ----------
    pairs : (k, 2), the first of each pair as `Space.before` says
    packed : of all spaces one after the other: sizes, where their vectors begin, where their
        matrices begin; distances, eccentricity, squares, weights; whether eccentricities tie;
        features (atoms, d), with d = 0 where there are none
    alpha : weight of the structure; 1 without features
    restarts : starts at staircases, after that at p q'
    kinds : (k,), where in ``orders`` the pair's staircases begin
    orders : for every kind of pair and restart two rows, the orders of its spaces
    plans : for the plans (n, m) of all pairs one after the other, or (0,) where nobody wants them
    """
    sizes, starts, squares_at, distances, eccentricity, squares, weights, tied, features = packed
    plans_at = 0
    values = np.empty(len(pairs))
    wholes = np.empty(len(sizes), np.int64)
    identity = np.arange(sizes.max())
    for k in range(len(sizes)):
        wholes[k] = _whole(weights[starts[k] : starts[k] + sizes[k]])
    for k in range(len(pairs)):
        i, j = pairs[k, 0], pairs[k, 1]
        n, m, at, to = sizes[i], sizes[j], starts[i], starts[j]
        x = (
            distances[squares_at[i] : squares_at[i] + n * n].reshape(n, n),
            eccentricity[at : at + n],
            squares[at : at + n],
            weights[at : at + n],
        )
        y = (
            distances[squares_at[j] : squares_at[j] + m * m].reshape(m, m),
            eccentricity[to : to + m],
            squares[to : to + m],
            weights[to : to + m],
        )
        grains, whole_x, whole_y = _FINEST, 0, 0
        if wholes[i] and wholes[j]:
            whole_x, whole_y = wholes[i], wholes[j]
            grains = whole_x // np.gcd(whole_x, whole_y) * whole_y
        a, b = _in_grains(x[3], whole_x, grains), _in_grains(y[3], whole_y, grains)
        if features.shape[1]:
            linear = np.zeros((n, m))
            for r in range(n):
                for c in range(m):
                    for d in range(features.shape[1]):
                        linear[r, c] += (features[at + r, d] - features[to + c, d]) ** 2
                    linear[r, c] *= 1.0 - alpha
        else:
            linear = np.zeros((0, 0))
        as_is = not (tied[i] or tied[j] or features.shape[1])
        size = n * m if plans.size else 0
        plan = plans[plans_at : plans_at + size].reshape(n if size else 0, m if size else 0)
        plans_at += size
        best, best_plan = np.inf, np.empty(plan.shape)
        for r in range(restarts + 1):
            order_x, order_y = identity[:n], identity[:m]
            if r > 0:
                order_x = orders[kinds[k] + 2 * r - 2, :n]
                order_y = orders[kinds[k] + 2 * r - 1, :m]
            found = _descend(
                x, y, a, b, 1.0 / grains, linear, alpha, order_x, order_y, as_is, r > 0, best_plan
            )
            if found < best:  # as it is, too, where it gave up
                best = found
                _copy(best_plan, plan)
        values[k] = best
    return values
