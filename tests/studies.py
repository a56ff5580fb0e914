"""What the tests of all studies must know of each, as its own tests tell it.

A study joins these tests by ``small.py`` among its own (``tests/apps/my_study/small.py``), with

    SMALL        settings of a run so small that only bits matter
    STRATEGIES   such settings for every way through its code, for the contract of strategies
    ANOTHER      a setting, its default and another value
    OWN_DATA     on files of one's own: kind of targets, settings, measures of its scores
    MAIN_ARRAY   the array of its result that comes first
    MAIN_GRAPH   the graph that comes first; None where there is none

Those that are older than this stand in the tests themselves.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trellis import apps


def told(name: str) -> dict[str, Any]:
    """Return what studies tell under a name, by study."""
    found = {}
    for study, package in apps.STUDIES.items():
        ours = package.startswith("trellis.apps.")
        tests = f"tests.{package.removeprefix('trellis.')}"
        if ours and find_spec(tests) and find_spec(f"{tests}.small"):
            found[study] = getattr(import_module(f"{tests}.small"), name)
    return found
