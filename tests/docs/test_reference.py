"""What the reference says beside the settings is what the code does."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import trellis
from trellis import apps
from trellis.apps.command.info.pages import keys, pages
from trellis.apps.command.info.pages.files import FILES
from trellis.privacy.device.codes import CODES, REMEDIES
from trellis.privacy.device.meanings import INTERNAL, NODE, POLICY, may_be
from trellis.privacy.device.policy_file import KEYS, NODE_KEYS, check

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference():
    return pages()


def test_every_key_of_a_node_config_is_explained(reference):
    assert set(POLICY) == set(KEYS)
    assert {*POLICY, *NODE, *INTERNAL} == set(NODE_KEYS)
    assert len(POLICY) + len(NODE) + len(INTERNAL) == len(NODE_KEYS)
    assert all(f"| `{key}` |" in reference["node-config.md"] for key in NODE_KEYS)
    guide = (ROOT / "privacy" / "POLICY.md").read_text()
    assert [key for key in POLICY if f"`{key}`" not in guide] == []


@pytest.mark.parametrize(
    ("key", "told", "taken", "refused"),
    [
        ("max-epsilon", "> 0", 0.1, 0),
        ("delta", "between 0 and 1, both excluded", 0.5, 1.0),
        ("colluding", "between 0 and 1", 0.0, 1.1),
        ("fewest-share", "> 0.5 and at most 1", 1.0, 0.5),
        ("fewest-clients", "a whole number >= 3", 3, 2),
        ("most-seconds", "> 0 and at most 604800", 604_800, 604_801),
        ("privacy", "list some of none, paper, dp", ["dp"], ["strong"]),
        ("count-noise-of", "one of nobody, signed, anyone", "signed", "all"),
    ],
)
def test_what_a_key_may_be_is_what_its_check_says(key, told, taken, refused):
    assert may_be(key) == told
    check(key, taken)
    with pytest.raises(ValueError, match=key):
        check(key, refused)


def test_every_code_has_a_meaning_and_a_remedy(reference):
    assert set(REMEDIES) == set(CODES)
    assert all(f"| `{code}` |" in reference["error-codes.md"] for code in CODES)


def test_every_key_of_the_run_config_is_explained():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert set(keys.RUN) == {key for key in config if not isinstance(config[key], dict)}


def test_every_name_of_the_python_api_is_explained(reference):
    text = reference["python.md"]
    for name in set(trellis.__all__) - {"STUDIES", "__version__"}:
        assert f"## `trellis.{name}` {{ #{name} }}" in text
        section = text.partition(f"## `trellis.{name}` ")[2].partition("\n## ")[0]
        assert len(section) > 80
    assert "engine: str = 'local'" in text
    assert "- `seed` (int, optional): The same seed gives the same result" in text


@pytest.mark.parametrize("line", ["info STUDY [SETTING]", "deploy init", "device ledger"])
def test_every_command_is_explained(line, reference):
    assert f"\ntrellis {line}" in reference["command-line.md"].replace(" [-h]", "")
    for word in ("`--max-staleness N`", "`--set KEY=VALUE`", "one of `local`, `flower`"):
        assert word in reference["command-line.md"]
    rows = re.findall(r"^\| (`[^|]+) \| *([^|]*)", reference["command-line.md"], re.MULTILINE)
    assert len(rows) > 100
    assert [name for name, meaning in rows if not meaning] == []


def test_usage_is_the_same_on_every_terminal(reference, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    assert pages()["command-line.md"] == reference["command-line.md"]


def test_the_files_of_a_run_are_those_of_the_reference(tmp_path, reference):
    apps.run(
        "consensus-graph", {"rounds": 2, "nodes": 6, "held-out": 0.2}, out=tmp_path, report=True
    )
    left = {f"{p.name}/" if p.is_dir() else p.name for p in tmp_path.iterdir()}
    assert left <= set(FILES)
    assert {"run.json", "metrics.csv", "scores.csv", "result.npz", "report.html"} <= left
    told = reference["files.md"].partition("{ #run-json }")[2]
    for key in json.loads((tmp_path / "run.json").read_text()):
        assert re.search(rf"\| `{key}` \| \S.{{8}}", told), key
