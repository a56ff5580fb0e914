"""Which files of the repository are pages of the site, and under which name.

A page of the repository stands once: those beside the code are taken from there when the site is
built. Nothing here fails because a page is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trellis import apps

# Pages outside docs/ that are always the same.
_SINGLE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "privacy/README.md": "privacy/index.md",
    "privacy/POLICY.md": "privacy/policy.md",
}
NOTEBOOKS = "notebooks"
REFERENCE = "reference"
STUDIES = "studies"
SOURCE = "source"


@dataclass(frozen=True)
class Sources:
    """Where every page of the site comes from.

    Attributes
    ----------
    root : the repository
    pages : of every page, by its name in the site, the file in the repository; all with ``/``
    """

    root: Path
    pages: Mapping[str, str]

    def place_of(self, path: str) -> str | None:
        """Return the name in the site of a file or a folder of the repository; None if none."""
        found = {there: here for here, there in self.pages.items()}
        return found.get(path) or found.get(f"{path}/README.md".removeprefix("./"))

    def by_stem(self, stem: str) -> str | None:
        """Return the page whose file is called ``stem``, wherever it is."""
        for name in self.pages:
            path = PurePosixPath(name)
            generated = path.parts[0] in (REFERENCE, NOTEBOOKS)
            if not generated and path.stem == stem:
                return name
        return None


def sources(root: Path) -> Sources:
    """Return the pages that there are in a repository."""
    found: dict[str, str] = {}
    for there, here in _SINGLE.items():
        if (root / there).is_file() and not (
            here == "index.md" and (root / "docs/index.md").is_file()
        ):
            found[here] = there
    for study, package in apps.STUDIES.items():
        page = f"{package.removeprefix('trellis.').replace('.', '/')}/README.md"
        if (root / page).is_file():
            found[f"{STUDIES}/{study}.md"] = page
    docs = root / "docs"
    for path in sorted(docs.rglob("*.md")):
        found[path.relative_to(docs).as_posix()] = path.relative_to(root).as_posix()
    for path in sorted(docs.glob("*.ipynb")):
        found[f"{NOTEBOOKS}/{path.stem}.md"] = path.relative_to(root).as_posix()
    return Sources(root, found)
