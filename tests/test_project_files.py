"""What stands beside the code is true: licence, citation, workflow, and the pages' names."""

from __future__ import annotations

import hashlib
import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.studies import told
from trellis import apps

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "privacy" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("apps/*/README.md")),
]
STUDIES = [package.rpartition(".")[2] for package in apps.STUDIES.values()]
# Of http://www.apache.org/licenses/LICENSE-2.0.txt, as it is, nothing filled in.
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
# How a page names a module of ours or something in it, and how a file or folder.
DOTTED = re.compile(r"(?<![\w-])(?:apps|strategies|privacy|sim)(?:\.[A-Za-z_]\w*)+(?!\.?[\w/])")
PATH = re.compile(r"`((?:apps|strategies|privacy|sim|tests|benchmarks)/[\w/.<>]*)`")


def load(name: str):
    return yaml.safe_load((ROOT / name).read_text())


def section(heading: str) -> str:
    """Return the guide's text below a heading, up to the next one."""
    _, _, text = GUIDE.partition(f"{heading}\n")
    assert text, f"CONTRIBUTING.md has no {heading!r}"
    return re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]


def places(path: str) -> list[Path]:
    """Return what a path stands for; one with <study> for a place of every study."""
    names = STUDIES if "<study>" in path else [""]
    return [ROOT / path.replace("<study>", name) for name in names]


def test_the_licence_is_apache_2_unchanged():
    text = (ROOT / "LICENSE").read_bytes()
    assert b"Apache License\n                           Version 2.0, January 2004" in text
    assert hashlib.sha256(text).hexdigest() == APACHE_2
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    # PEP 639: the expression says it; a classifier beside it is refused by package indexes.
    assert not [c for c in PROJECT["classifiers"] if c.startswith("License")]


def test_the_citation_names_the_software_and_the_five_papers():
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    references = citation["references"]
    assert len(references) == 5
    for reference in references:
        assert {"type", "title", "authors"} <= set(reference)
    about = " ".join(reference["notes"] for reference in references)
    with_a_paper = [study for study in apps.STUDIES if study not in told("SMALL")]
    assert [study for study in with_a_paper if study not in about] == []


def test_the_changelog_has_this_version_and_what_comes_next():
    found = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found[0] == "Unreleased"
    assert PROJECT["version"] in found


def test_the_workflow_runs_what_people_run():
    (job,) = load(".github/workflows/test.yml")["jobs"].values()
    assert job["runs-on"].startswith("ubuntu")
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert {"make test", "make run"} <= set(commands)
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in job["steps"]
            if "uses" in step}  # fmt: skip
    assert used["actions/setup-python"]["python-version"] == "3.11"
    assert used["actions/upload-artifact"]["path"] == "results/"


def test_the_hooks_call_make():
    (repository,) = load(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == ["make lint"]


def test_every_folder_of_the_guide_is_there():
    rows = re.findall(r"^\| `(.+?)` \|", section("## Where things are"), re.MULTILINE)
    assert {"apps/", "apps/<study>/", "strategies/core/", "privacy/secagg/", "sim/"} <= set(rows)
    assert [path for row in rows for path in places(row) if not path.is_dir()] == []


def test_every_room_is_in_the_guide():
    """A new folder below the four packages is named, by itself or as a part of every study."""
    rows = re.findall(r"^\| `(.+?)` \|", section("## Where things are"), re.MULTILINE)
    named = {path for row in rows for path in places(row)}
    rooms = {
        path.parent
        for package in ("apps", "strategies", "privacy", "sim")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert rooms - named == set()


def test_a_round_is_followed_in_eight_files_none_of_a_runtime():
    walk = re.findall(r"^\d+\. `(.+?)`", section("### Follow a round"), re.MULTILINE)
    assert 4 <= len(walk) <= 8
    assert walk[0] == "apps/consensus_graph/config.py"
    assert [path for path in walk if not (ROOT / path).is_file()] == []
    assert [path for path in walk if path.startswith("sim/")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    assert [name for name in sorted(set(DOTTED.findall(text))) if not exists(name)] == []
    paths = [path for path in PATH.findall(text) if "my_study" not in path]  # the next study's
    assert [path for path in paths if not all(place.exists() for place in places(path))] == []
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def exists(name: str) -> bool:
    """Return whether a dotted name is a module of ours, or something in one."""
    head, _, last = name.rpartition(".")
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass  # the parent is a module, or not there
    try:
        return hasattr(import_module(head), last)
    except ModuleNotFoundError:
        return False
