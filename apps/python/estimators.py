"""Learning alone, in scikit-learn's way: ``fit``, ``score``, ``get_params``.

For cross-validation, grids and pipelines of one's own. `SmoothGraph` is the local problem of
consensus-graph, `JointGraphicalLasso` the joint problem of joint-precision with all data in one
place; both learn what a federation without privacy would be compared with.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from trellis.install import pip_install

from .functions import smooth_weights

try:
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"estimators need scikit-learn: {pip_install('laptop')}") from error

if TYPE_CHECKING:
    from .learned import LearnedGraph

Matrix = NDArray[np.float64]


class SmoothGraph(BaseEstimator):  # type: ignore[misc]
    """The graph over which signals are smooth, see `trellis.smooth_graph`.

    Parameters
    ----------
    alpha : float
        > 0, weight of the log barrier that keeps every node connected.
    beta : float, optional
        > 0, ridge; None follows the data's unit and the number of signals.

    Attributes
    ----------
    weights_ : (d, d) array
        Symmetric, zeros on the diagonal.
    scale_ : float
        c, with which precision c L is best for the signals that were learned from.
    graph_ : LearnedGraph
        The same as a networkx graph.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> X = np.random.default_rng(0).normal(size=(60, 4)).cumsum(axis=1)
    >>> model = trellis.SmoothGraph().fit(X[:40])
    >>> model.weights_.shape, bool(model.score(X[40:]) > trellis.SmoothGraph(beta=1e4).fit(
    ...     X[:40]).score(X[40:]))
    ((4, 4), True)
    """

    weights_: Matrix
    scale_: float

    def __init__(self, alpha: float = 2.0, beta: float | None = None) -> None:
        self.alpha = alpha
        self.beta = beta

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the graph from signals (n, d), rows; ``y`` is not read."""
        from trellis.apps.consensus_graph.private.personal import best_scale, with_faint
        from trellis.apps.consensus_graph.problem import adjacency

        signals = validate_data(
            self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2
        )
        found = smooth_weights(signals, self.alpha, self.beta)
        self.weights_ = adjacency(found)
        self.scale_ = best_scale(with_faint(found), signals)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean Gaussian log-likelihood of signals, larger is better; ``y`` is not read.

        Of their differences, which is all that a graph sees, without the constant
        (d - 1) log(2 pi) / 2, and with a faint complete graph on top of the learned one, as the
        devices of consensus-graph score theirs.
        """
        from trellis.apps.consensus_graph.private.personal import log_likelihood, with_faint
        from trellis.apps.consensus_graph.problem import edge_vector

        check_is_fitted(self)
        signals = validate_data(self, X, dtype=np.float64, reset=False)
        weights = with_faint(edge_vector(self.weights_))
        return float(np.mean(log_likelihood(weights, signals, self.scale_)))

    @property
    def graph_(self) -> LearnedGraph:
        """The learned graph, nodes named by the columns of a DataFrame."""
        check_is_fitted(self)
        return _graph(self.weights_, _names(self), "smooth graph")


class JointGraphicalLasso(BaseEstimator):  # type: ignore[misc]
    """Sparse precision matrices of several groups, see `trellis.joint_graphical_lasso`.

    Rank correlations by default, so that variables may have any margins. Where a matrix of them is
    not positive semidefinite, the nearest such matrix takes its place.

    Parameters
    ----------
    lambda1, lambda2 : float
        >= 0: sparsity of each group's matrix, likeness between groups.
    penalty : {"group", "fused"}
        Groups share which edges there are; or also how strong they are.
    correlation : {"kendall", "spearman", "pearson"}
        How correlations are estimated.
    tol : float
        Certified distance from the smallest objective.
    max_iter : int
        Most steps.

    Attributes
    ----------
    groups_ : (K,) array
        The groups' labels, in the order of the matrices.
    precision_ : (K, p, p) array
        With exact zeros; of variables scaled to variance 1.
    covariance_ : (K, p, p) array
        Its inverses.
    n_iter_ : int
        Steps taken.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np, trellis
    >>> rng = np.random.default_rng(0)
    >>> X, ward = rng.normal(size=(90, 3)), np.repeat(["a", "b", "c"], 30)
    >>> model = trellis.JointGraphicalLasso(0.3, 0.1).fit(X, groups=ward)
    >>> model.precision_.shape, model.groups_.tolist()
    ((3, 3, 3), ['a', 'b', 'c'])
    >>> same = trellis.JointGraphicalLasso(0.3, 0.1).fit([X[:30], X[30:60], X[60:]])
    >>> bool(np.all(same.precision_ == model.precision_))
    True
    """

    groups_: NDArray[Any]
    precision_: Matrix
    covariance_: Matrix
    n_iter_: int

    def __init__(
        self,
        lambda1: float = 0.1,
        lambda2: float = 0.05,
        penalty: str = "group",
        *,
        correlation: str = "kendall",
        tol: float = 1e-6,
        max_iter: int = 5000,
    ) -> None:
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.penalty = penalty
        self.correlation = correlation
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Learn a matrix a group.

        Parameters
        ----------
        X : (n, p) table, or list of tables
            Rows are samples. A list has one table a group.
        y : ignored
        groups : (n,) labels, optional
            The group of every row of one table; None is one group.
        """
        from trellis.apps.joint_precision.correlation import correlation, to_positive_semidefinite
        from trellis.apps.joint_precision.solver import solve_joint

        from .functions import check_penalty

        check_penalty(self.penalty, self.lambda1, self.lambda2)
        tables, self.groups_ = self._split(X, groups, reset=True)
        for label, table in zip(self.groups_, tables, strict=True):
            if len(table) < 2:
                raise ValueError(f"group {str(label)!r} has 1 sample; two are needed at least")
        found = np.array([correlation(table, self.correlation) for table in tables])
        whole = np.array([to_positive_semidefinite(matrix)[0] for matrix in found])
        solution = solve_joint(
            whole,
            self.lambda1,
            self.lambda2,
            self.penalty,
            tolerance=self.tol,
            rounds=self.max_iter,
        )
        if not solution.gap <= self.tol:
            warnings.warn(
                f"stopped after max_iter={self.max_iter} steps with a gap of {solution.gap:.2g}, "
                f"above tol={self.tol:g}; raise max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.precision_ = solution.sparse
        self.covariance_ = np.asarray(np.linalg.inv(solution.sparse), dtype=np.float64)
        self.n_iter_ = solution.rounds
        self._margins = [self._margin(table) for table in tables]
        return self

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """Return the mean Gaussian log-likelihood of samples, larger is better; ``y`` is not read.

        Of samples on the scale of the Gaussian behind them: with ``pearson`` every variable minus
        its mean over its deviation, else by the quantiles of the group that was learned from.
        """
        check_is_fitted(self)
        tables, labels = self._split(X, groups, reset=False)
        total, count = 0.0, 0
        for label, table in zip(labels, tables, strict=True):
            place = self._place(label)
            latent = self._latent(table, self._margins[place])
            omega = self.precision_[place]
            spread = np.sum((latent @ omega) * latent, axis=1)
            constant = float(np.linalg.slogdet(omega)[1]) - omega.shape[0] * math.log(2.0 * math.pi)
            total += float(np.sum(0.5 * (constant - spread)))
            count += len(table)
        return total / count

    def graph(self, group: Any = None) -> LearnedGraph:
        """Return a group's graph, weights are partial correlations; None is the first group."""
        from trellis.apps.joint_precision.problem import partial_correlations

        check_is_fitted(self)
        place = 0 if group is None else self._place(group)
        partial = partial_correlations(self.precision_[place])
        return _graph(partial, _names(self), str(self.groups_[place]))

    def _split(self, X: Any, groups: Any, *, reset: bool) -> tuple[Sequence[Matrix], NDArray[Any]]:
        """Return a table a group, and the groups' labels."""
        if isinstance(X, list | tuple) and X and len(getattr(X[0], "shape", ())) == 2:
            if groups is not None:
                raise ValueError("groups: goes with one table; a list has one table a group")
            # One after the other: all must have the same columns.
            tables = [
                validate_data(self, table, dtype=np.float64, reset=reset and not number)
                for number, table in enumerate(X)
            ]
            return tables, np.arange(len(tables))
        table = validate_data(
            self,
            X,
            dtype=np.float64,
            reset=reset,
            ensure_min_samples=2 if reset else 1,
            ensure_min_features=2 if reset else 1,
        )
        if groups is None:
            if not reset and len(self.groups_) > 1:
                raise ValueError(f"groups: say of which of the {len(self.groups_)} a row is")
            return [table], np.zeros(1, dtype=int) if reset else self.groups_
        labels = np.asarray(groups)
        if labels.shape != (len(table),):
            raise ValueError(f"groups has shape {labels.shape}, X {len(table)} rows; one a row")
        known = np.unique(labels)
        return [table[labels == label] for label in known], known

    def _place(self, label: Any) -> int:
        places = np.flatnonzero(self.groups_ == label)
        if not places.size:
            told = ", ".join(str(known) for known in self.groups_)
            raise ValueError(
                f"group {str(label)!r}: was not there when the model was fitted; {told} were"
            )
        return int(places[0])

    def _margin(self, table: Matrix) -> Matrix:
        from trellis.apps.joint_precision.owner.margins import margins

        if self.correlation == "pearson":
            return np.array([table.mean(axis=0), table.std(axis=0)])
        return margins(table)

    def _latent(self, table: Matrix, known: Matrix) -> Matrix:
        from trellis.apps.joint_precision.owner.margins import to_gaussian

        if self.correlation == "pearson":
            return np.asarray((table - known[0]) / known[1], dtype=np.float64)
        return to_gaussian(table, known)


def _names(fitted: Any) -> list[str]:
    """Return the columns' names, or numbers where there were none."""
    named = getattr(fitted, "feature_names_in_", None)
    count = int(fitted.n_features_in_)
    width = len(str(count))
    return (
        [f"v{place + 1:0{width}d}" for place in range(count)]
        if named is None
        else [str(name) for name in named]
    )


def _graph(matrix: Matrix, names: Sequence[str], title: str) -> LearnedGraph:
    from trellis.apps.pages.named import NamedGraph

    from .learned import LearnedGraph

    return LearnedGraph.of(NamedGraph.of_matrix(matrix, names), title)
