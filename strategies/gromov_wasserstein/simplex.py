"""Linear optimal transport by POT's network simplex, without the cost of POT's checks.

    min_T <T, G>   over   T >= 0, T 1 = p, T' 1 = q,           p : (n,), q : (m,), G : (n, m)

Graphs here have some twenty nodes and a problem takes 30 microseconds, less than what `ot.emd`
spends around its C++ solver. So the solver ``emd_c`` is called itself, and what it gets wrong in
silence is caught here: with costs that are all negative it returns a plan of zeros.

Nothing but ``emd_c`` is needed, while ``import ot`` brings torch and scikit-learn and takes a
second or more: `load_light` takes the one extension module out of the package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module, machinery, util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.install import pip_install

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_OPTIMAL = 1  # code of emd_c
_STEPS = 100_000  # POT's own limit within Gromov-Wasserstein
_MASS = 1e-9  # largest error of a plan's marginals

_emd_c: Callable[..., Any] | None = None


class TransportError(RuntimeError):
    """The network simplex did not return a plan with the right marginals."""


def transport(p: Vector, q: Vector, costs: Matrix) -> Matrix:
    """Return a vertex T (n, m) that minimises <T, costs>.

    Parameters
    ----------
    p, q : positive, each of sum one
    costs : (n, m), float64 in C order, of any sign
    """
    solver = _emd_c or _load()
    plan, *_, code = solver(p, q, costs, _STEPS, 1)
    if code != _OPTIMAL:
        # Of another sign, or too many steps: a shift moves the value and not the plan.
        plan, *_, code = solver(p, q, costs - costs.min(), 100 * _STEPS, 1)
    if code != _OPTIMAL:
        raise TransportError(
            f"POT's network simplex ended with code {code} for {p.size} x {q.size} costs in "
            f"[{costs.min():.3g}, {costs.max():.3g}]; are weights positive and of sum one, and "
            "costs finite?"
        )
    return plan


def check_marginals(plan: Matrix, p: Vector, q: Vector) -> None:
    """Raise `TransportError` where the plan does not move p to q."""
    rows, columns = plan.sum(axis=1) - p, plan.sum(axis=0) - q
    error = float(rows @ rows + columns @ columns) ** 0.5
    if not error <= _MASS:
        raise TransportError(f"a transport plan misses its marginals by {error:.3g}")


def load_light() -> None:
    """Load POT's network simplex alone.

    Its extension module refuses to be loaded twice, so it stays under POT's name for it too, where
    an ``import ot`` finds it. Where POT is loaded already, or is laid out in another way, this does
    nothing.
    """
    global _emd_c
    if "ot" in sys.modules or _emd_c is not None:
        return
    found = util.find_spec("ot")
    if found is None or not found.submodule_search_locations:
        return
    folder = Path(found.submodule_search_locations[0]) / "lp"
    files = [folder / f"emd_wrap{suffix}" for suffix in machinery.EXTENSION_SUFFIXES]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        return
    private = "_trellis_pot"  # the extension imports ..utils.dist, which emd_c does not use
    stubs = {name: ModuleType(name) for name in (private, f"{private}.lp", f"{private}.utils")}
    stubs[f"{private}.utils"].dist = _dist  # type: ignore[attr-defined]
    for stub in stubs.values():
        stub.__path__ = []
    sys.modules.update(stubs)
    spec = util.spec_from_file_location(f"{private}.lp.emd_wrap", path)
    if spec is None or spec.loader is None:
        return
    try:
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _emd_c = module.emd_c
        sys.modules["ot.lp.emd_wrap"] = module
    except (ImportError, AttributeError):
        for name in stubs:
            del sys.modules[name]


def _dist(*arguments: Any, **named: Any) -> Any:
    """Do what ``ot.utils.dist`` does, for who uses more of POT than this module."""
    return import_module("ot.utils").dist(*arguments, **named)


def _load() -> Callable[..., Any]:
    global _emd_c
    load_light()
    if _emd_c is not None:
        return _emd_c
    try:
        _emd_c = import_module("ot.lp.emd_wrap").emd_c
    except ImportError as error:
        raise ImportError(
            f"optimal transport needs POT, which is not installed: {pip_install('gnn')}"
        ) from error
    return _emd_c
