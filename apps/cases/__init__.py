"""Worked cases: real data, from clients' files to one page that anybody can read.

Start with `hospitals`, one case from its loader to its sentences. `case` says what a case is made
of and runs one, `evidence` turns the scores of several splits into numbers with their errors,
`blocks` into tables and figures, `page` writes the page. A new case is a module with a `CASE`, and
a line here; nothing is imported before it is asked for.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from trellis.apps.common.settings import ConfigError

if TYPE_CHECKING:
    from .case import Case

CASES = {
    "hospitals": "trellis.apps.cases.hospitals",
    "brains": "trellis.apps.cases.brains",
    "molecules": "trellis.apps.cases.molecules",
}


def load(name: str) -> Case:
    """Return a case by its name.

    Raises
    ------
    ConfigError
        For a name that is none; it says which one is near, and which there are.
    """
    if name not in CASES:
        near = difflib.get_close_matches(name, CASES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"no case is called {name!r}: {meant}there are {', '.join(CASES)}")
    found: Case = import_module(CASES[name]).CASE
    return found
