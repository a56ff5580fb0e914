"""The order of the pages: four parts, and in each the pages that there are.

A page that is in no list below stands at the end of the part that its folder names, or of how-to:
nothing has to be entered here for a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

HOME, TUTORIAL, HOW_TO, REFERENCE, EXPLANATION = (
    "Home",
    "Tutorial",
    "How-to",
    "Reference",
    "Explanation",
)
_FOLDERS = {
    "tutorial": TUTORIAL,
    "notebooks": TUTORIAL,
    "how-to": HOW_TO,
    "cases": HOW_TO,
    "reference": REFERENCE,
    "studies": REFERENCE,
    "privacy": EXPLANATION,
    "explanation": EXPLANATION,
}
# By the stem of a page, whatever folder it is in; with a folder where that matters.
_ORDER = {
    TUTORIAL: ("tutorial", "notebooks/tour", "notebooks/own-data"),
    HOW_TO: (
        *("flower", "own-data", "python", "choosing-settings", "tuning", "devices", "deploy"),
        "faults",
        *("graph-of-servers", "graph", "graph-results", "privacy-budget", "secure-aggregation"),
        *("long-runs", "many-clients", "extend", "benchmarks"),
    ),
    REFERENCE: ("papers", "data", "privacy/policy", "benchmarks", "changelog", "contributing"),
    EXPLANATION: (
        "a-round",
        "round",
        "who-sees-what",
        "papers-privacy",
        "privacy/index",
        "messages",
        "glossary",
    ),
}
# Groups inside a part, by folder: where they stand, and what they are called.
_GROUPS = {"cases": "Worked cases", "studies": "Studies", "reference/settings": "Settings"}
_TITLES = {
    "reference/command-line": "Command line",
    "reference/python": "Python API",
    "reference/files": "Files of a run",
    "reference/error-codes": "Error codes",
    "reference/node-config": "Node config and policy",
    "reference/run-config": "Run config",
    "privacy/index": "Who is trusted for what",
    "privacy/policy": "The owner's policy",
    "changelog": "Changes",
    "contributing": "Contributing",
    "papers": "The papers' claims",
    "notebooks/own-data": "Notebook: your own data",
    "notebooks/tour": "Notebook: a tour of the studies",
}


def part_of(page: str) -> str:
    """Return the part that a page belongs to."""
    path = PurePosixPath(page)
    if page == "index.md":
        return HOME
    whole = str(path.with_suffix(""))
    for part in (TUTORIAL, REFERENCE, EXPLANATION, HOW_TO):
        if whole in _ORDER[part]:
            return part
    if len(path.parts) > 1 and path.parts[0] in _FOLDERS:
        return _FOLDERS[path.parts[0]]
    for part in (TUTORIAL, HOW_TO, EXPLANATION):
        if path.stem in _ORDER[part]:
            return part
    return HOW_TO


def navigation(pages: Iterable[str], reference: Iterable[str]) -> list[dict[str, Any]]:
    """Return the navigation as mkdocs takes it.

    Parameters
    ----------
    pages : names of all pages in the site
    reference : those that are made from the code, in their order
    """
    listed = sorted(set(pages) - set(reference))
    found: list[dict[str, Any]] = [{HOME: "index.md"}]
    for part in (TUTORIAL, HOW_TO, REFERENCE, EXPLANATION):
        own = sorted((page for page in listed if part_of(page) == part), key=_key(part))
        entries = _entries([*(reference if part == REFERENCE else ()), *own])
        if entries:
            found.append({part: entries})
    return found


def _key(part: str) -> Any:
    order = {name: place for place, name in enumerate(_ORDER[part])}

    def key(page: str) -> tuple[int, str]:
        whole = str(PurePosixPath(page).with_suffix(""))
        place = order.get(whole, order.get(PurePosixPath(page).stem, len(order)))
        place = -1 if page.startswith("studies/") else place
        return place, "" if whole.endswith(("/index", "/README")) else whole

    return key


def _entries(pages: Iterable[str]) -> list[Any]:
    """Return pages as entries; those of a group stand together, where its first page stands."""
    found: list[Any] = []
    groups: dict[str, list[Any]] = {}
    for page in pages:
        path = PurePosixPath(page)
        group = _GROUPS.get(str(path.parent), "")
        if group and group not in groups:
            groups[group] = []
            found.append({group: groups[group]})
        (groups[group] if group else found).append(_entry(page))
    return found


def _entry(page: str) -> Any:
    whole = str(PurePosixPath(page).with_suffix(""))
    if page.startswith(("reference/settings/", "studies/")) and not whole.endswith("index"):
        return {PurePosixPath(page).stem: page}
    return {_TITLES[whole]: page} if whole in _TITLES else page
