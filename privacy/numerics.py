"""Parts of scipy without the rest of it: a root, special functions, LAPACK, ranks, a matching.

On a device every message is a Python process of its own, so what a client imports it pays for with
every message. A release needs a root and the normal distribution, a local step one factorisation;
``import scipy.optimize`` or ``scipy.stats`` for them takes longer than all of the study's own
modules. Each of these lives in one compiled file of scipy's that needs nothing else of it, and is
loaded from there: the same machine code, so the same bits as scipy's own functions.

Where scipy is laid out in another way, or loaded already, the ordinary import does it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module, machinery, util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Factor = tuple[Array, bool]

LinAlgError = np.linalg.LinAlgError  # scipy's is the same class

_LEAST_RTOL = 4.0 * float(np.finfo(np.float64).eps)  # scipy's, below which it does not converge
_STEPS = 100


@cache
def part(package: str, file: str, *needed: str) -> Any:
    """Return one compiled module of a package of scipy's, or the package that has its functions.

    Parameters
    ----------
    package : ``scipy.special``, for one
    file : the module in it
    needed : what the module must have to be used
    """
    if package not in sys.modules:
        found = util.find_spec("scipy")
        folders = (found.submodule_search_locations if found else None) or []
        for folder in folders:
            inside = Path(folder, *package.split(".")[1:])
            for suffix in machinery.EXTENSION_SUFFIXES:
                path = inside / f"{file}{suffix}"
                module = _load(f"{package}.{file}", path) if path.is_file() else None
                if module is not None and all(hasattr(module, name) for name in needed):
                    return module
    try:
        module = import_module(f"{package}.{file}")
    except ImportError:
        module = None
    whole = module is not None and all(hasattr(module, name) for name in needed)
    return module if whole else import_module(package)


def _load(name: str, path: Path) -> Any:
    """Return the module in this file; it does not count as imported. None where it needs more."""
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        return None
    try:
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, AttributeError):
        return None
    return module


_special = part("scipy.special", "_special_ufuncs", "expit", "ndtr", "log_ndtr", "erf", "gammaln")

expit: Callable[..., Any] = _special.expit
ndtr: Callable[..., Any] = _special.ndtr
log_ndtr: Callable[..., Any] = _special.log_ndtr
erf: Callable[..., Any] = _special.erf
gammaln: Callable[..., Any] = _special.gammaln


def brentq(
    f: Callable[[float], float], a: float, b: float, xtol: float = 2e-12, rtol: float = _LEAST_RTOL
) -> float:
    """Return the root of ``f`` between ``a`` and ``b``, where its signs differ; as scipy's.

    Raises
    ------
    ValueError
        Where the signs do not differ, or ``f`` is not a number.
    RuntimeError
        Where it does not converge.
    """
    if xtol <= 0.0 or rtol < _LEAST_RTOL:
        raise ValueError(f"xtol={xtol:g}, rtol={rtol:g}: too small")
    zeros = part("scipy.optimize", "_zeros", "_brentq")
    if not hasattr(zeros, "_brentq"):
        return float(zeros.brentq(f, a, b, xtol=xtol, rtol=rtol))

    def checked(x: float) -> float:
        value = f(x)
        if np.isnan(value):
            raise ValueError(f"the function value at x={x} is not a number")
        return value

    return float(zeros._brentq(checked, a, b, xtol, rtol, _STEPS, (), False, True))


def normal_density(x: float) -> float:
    """Return the density of the standard normal distribution; as ``scipy.stats.norm.pdf``."""
    return float(np.exp(-(x * x) / 2.0)) / math.sqrt(2.0 * math.pi)


def linear_sum_assignment(costs: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the cheapest matching; as scipy's."""
    found = part("scipy.optimize", "_lsap", "linear_sum_assignment")
    rows, columns = found.linear_sum_assignment(costs)
    return rows, columns


def log_sum_exp(terms: Array) -> float:
    """Return log(sum(exp(terms))) of a vector; as scipy's ``logsumexp``."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        most = np.max(terms)
        # The largest terms stand apart from the sum, for its last bits.
        largest = terms == most
        count = np.sum(largest, dtype=np.float64)
        rest = np.sum(np.exp(np.where(largest, -np.inf, terms) - most))
        found = np.log1p(rest if rest == 0.0 else rest / count) + np.log(count) + most
        return float(found if np.isfinite(found) else np.log(np.sum(np.exp(terms))))


@cache
def lapack() -> Any:
    """Return LAPACK's functions for float64, by their names: ``dposv`` and all others."""
    found = part("scipy.linalg", "_flapack", "dposv", "dpotrf", "dpotrs", "dtrtrs", "dsyevd")
    return found if hasattr(found, "dposv") else import_module("scipy.linalg.lapack")


def cholesky(a: Array, *, overwrite: bool = False) -> Array:
    """Return the lower factor of a positive definite matrix; as scipy's, unchecked for NaN.

    With ``overwrite`` it is written over ``a`` where that is in the order of columns, and no second
    matrix is made.

    Raises
    ------
    LinAlgError
        Where it is not positive definite.
    """
    return _potrf(a, lower=True, clean=True, overwrite=overwrite)


def cho_factor(a: Array) -> Factor:
    """Return what `cho_solve` needs of a positive definite matrix; as scipy's.

    Raises
    ------
    ValueError
        Where an entry is not finite.
    LinAlgError
        Where it is not positive definite.
    """
    return _potrf(np.asarray_chkfinite(a), lower=False, clean=False), False


def cho_solve(factor: Factor, b: Array) -> Array:
    """Return the solution of a system whose matrix `cho_factor` has factored; as scipy's.

    Raises
    ------
    ValueError
        Where an entry is not finite.
    """
    c, lower = factor
    c, b = np.asarray_chkfinite(c), np.asarray_chkfinite(b)
    if b.size == 0:
        return np.empty_like(b)
    found, failed = lapack().dpotrs(c, b, lower=lower)
    if failed:
        raise ValueError(f"LAPACK's potrs: argument {-failed} is wrong")
    return np.asarray(found)


def solve_lower(a: NDArray[np.floating[Any]], b: Array) -> Array:
    """Return the solution of a x = b, where ``a`` is lower triangular; as scipy's.

    Raises
    ------
    ValueError
        Where an entry is not finite.
    LinAlgError
        Where ``a`` is singular.
    """
    a, b = np.asarray_chkfinite(a), np.asarray_chkfinite(b)
    if b.size == 0:
        return np.empty_like(b)
    # LAPACK wants the order of columns: a matrix in that of rows is its transpose, upper.
    if a.flags.f_contiguous:
        found, failed = lapack().dtrtrs(a, b, lower=True, trans=0)
    else:
        found, failed = lapack().dtrtrs(a.T, b, lower=False, trans=1)
    if failed:
        raise LinAlgError(f"singular matrix: resolution failed at diagonal {failed - 1}")
    return np.asarray(found)


def _potrf(a: Array, *, lower: bool, clean: bool, overwrite: bool = False) -> Array:
    if a.size == 0:
        return np.empty_like(a)
    found, failed = lapack().dpotrf(a, lower=lower, clean=clean, overwrite_a=overwrite)
    if failed > 0:
        raise LinAlgError(f"{failed}-th leading minor of the array is not positive definite")
    if failed < 0:
        raise ValueError(f"LAPACK's potrf: argument {-failed} is wrong")
    return np.asarray(found)


def rankdata(values: ArrayLike, *, dense: bool = False) -> NDArray[Any]:
    """Return the ranks of a table's entries (n, p) in their columns, from 1; as scipy's, no NaN.

    Equal entries have the mean of their ranks, or with ``dense`` one rank, and the next has the
    next.
    """
    table = np.asarray(values)
    order = np.argsort(table, axis=0, kind="stable")
    ordered = np.take_along_axis(table, order, axis=0)
    first = np.ones(table.shape, dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    groups = np.cumsum(first, axis=0)
    ranks: NDArray[Any]
    if dense:
        ranks = groups
    else:
        ranks = np.empty(table.shape)
        for column in range(table.shape[1]):
            starts = np.append(np.flatnonzero(first[:, column]), len(table))
            # The mean of the ranks start + 1 .. end of a group.
            means = 0.5 * (starts[:-1] + starts[1:] + 1)
            ranks[:, column] = means[groups[:, column] - 1]
    found = np.empty_like(ranks)
    np.put_along_axis(found, order, ranks, axis=0)
    return found
