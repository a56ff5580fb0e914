"""What to install where a package is missing, in words: the same wherever it is missed.

Here, as everybody may import it. Trellis is on no package index: it is installed from a clone.
"""

from __future__ import annotations

_CLONE = "in a clone of the project"

# Simulations, reports, plots, accounting.
LAPTOP = f"pip install '.[laptop]' {_CLONE}"
# Graph neural networks and optimal transport.
GNN = f"pip install '.[gnn]' {_CLONE}"
# Optuna, to propose settings.
TUNE = f"pip install '.[tune]' {_CLONE}"
