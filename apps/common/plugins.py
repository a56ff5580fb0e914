"""Parts of one's own under a name: losses and models that settings can choose.

In Python, for runs in this process:

    from trellis.apps.common.plugins import register
    register("losses", "huber", Huber)           # then: trellis.run("server-graph", loss="huber")

For devices and Flower's runtimes, an entry point of an installed package:

    [project.entry-points."trellis.losses"]
    huber = "my_package.losses:Huber"

A run config names a part and never code: a device has the parts that its owner installed, and no
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trellis.apps.common.checks.checking import ConfigError

_registered: dict[tuple[str, str], Any] = {}


def register(kind: str, name: str, part: Any) -> None:
    """Give a part a name for settings, in this process.

    Parameters
    ----------
    kind : ``losses`` or ``models``
    name : what the setting says; letters, digits and hyphens
    part : the class; the study's page says which methods it must have
    """
    _registered[kind, name] = part


def names(kind: str) -> list[str]:
    """Return the names of all parts of a kind, besides those that Trellis has."""
    return sorted({*_installed(kind), *(name for of, name in _registered if of == kind)})


def find(kind: str, key: str, name: str, built_in: Iterable[str]) -> Any:
    """Return the part that a setting names.

    Parameters
    ----------
    key, name : the setting and its value, for the error
    built_in : what the setting may be besides

    Raises
    ------
    ConfigError
        If nothing has that name, or its package cannot be loaded; says how to provide it.
    """
    if (kind, name) in _registered:
        return _registered[kind, name]
    point = _installed(kind).get(name)
    if point is None:
        raise ConfigError(
            f"{key}={name!r}: use one of {', '.join([*built_in, *names(kind)])}; one of your own "
            f"needs an entry point {name!r} of the group trellis.{kind} in a package that is "
            "installed on the server and on every client"
        )
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}={name!r}: {point.value} cannot be loaded: {error}") from None


def known(kind: str, name: str) -> bool:
    """Return whether a part has this name; nothing is imported."""
    return (kind, name) in _registered or name in _installed(kind)


@cache
def _installed(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"trellis.{kind}")}
