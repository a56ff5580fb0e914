"""The shared model: `gnn` (GCN, GIN; of `layers`), or a user's own by its registered name (`own`).

What a client does with it is `training` (learn with `adam`, count hits, embed); `update` makes of
that its part of a round.
"""

from __future__ import annotations

from importlib.util import find_spec

from trellis.apps.common.settings import ConfigError
from trellis.install import pip_install


def require_installed() -> None:
    """Refuse, with the pip line, where torch is not installed.

    It is not imported, which takes a second: whether it can be is found by `gnn`.
    """
    if find_spec("torch") is None:
        raise ConfigError(cannot("torch", "not installed"))


def cannot(package: str, reason: object) -> str:
    """Return what to say of a package that cannot be imported."""
    return (
        f"gromov-wasserstein trains graph neural networks and {package} cannot be imported "
        f"({reason}); on the server and on every client: {pip_install('gnn')}"
    )
