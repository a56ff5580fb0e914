"""The shared model: `gnn` (GCN, GIN), or a user's own by dotted name (`own`).

What a client does with it is `training` (learn, count hits, embed); `update` makes of that its part
of a round.
"""

from __future__ import annotations

from importlib.util import find_spec

from apps.common.settings import ConfigError
from privacy.install import GNN


def require_installed() -> None:
    """Refuse, with the pip line, where torch or torch-geometric is not installed.

    Neither is imported, which takes seconds: whether they can be is found by `gnn`.
    """
    for package in ("torch", "torch_geometric"):
        if find_spec(package) is None:
            raise ConfigError(cannot(package, "not installed"))


def cannot(package: str, reason: object) -> str:
    """Return what to say of a package that cannot be imported."""
    return (
        f"gromov-wasserstein trains graph neural networks and {package} cannot be imported "
        f"({reason}); on the server and on every client: {GNN}"
    )
