"""Names of new studies, where they are entered, and what is refused without a trace."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from trellis import apps
from trellis.apps.command import main
from trellis.apps.command.new import making, naming
from trellis.apps.common.settings import ConfigError

ROOT = Path(__file__).parents[3]
NAME = "trial-study"


@pytest.fixture
def checkout(tmp_path) -> Path:
    """As much of a checkout as a study is entered in."""
    root = tmp_path / "checkout"
    for folder in ("apps/common", "strategies/core", "tests"):
        (root / folder).mkdir(parents=True)
    for name in ("apps/__init__.py", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    return root


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Study", "small letters and digits"),
        ("my_study", "small letters and digits"),
        ("my--study", "small letters and digits"),
        ("9-lives", "begins with a letter"),
        ("", "small letters and digits"),
        ("../my-study", "small letters and digits"),
        ("a" * 33, "33 letters; 32 at most"),
        ("class", "a word of Python's own"),
        ("all", "another meaning here"),
        ("sim", "another meaning here"),
        ("server-graph", "there is such a study, trellis.apps.server_graph"),
        ("common", "apps/common is there"),
        ("core", "strategies/core is there"),
        ("results", "gitignore leaves out"),
        ("seed", "a key of"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused_and_nothing_is_written(name, words, checkout):
    before = files(checkout)
    with pytest.raises(ConfigError, match=words):
        making.make_study(name, checkout)
    assert files(checkout) == before


def test_what_a_study_is_called_in_code():
    assert naming.folder_of("my-own-study2") == "my_own_study2"
    assert naming.title_of("my-own-study2") == "MyOwnStudy2"


def test_a_study_is_entered_with_all_its_settings_and_in_order(checkout):
    made = making.make_study(NAME, checkout)
    text = (checkout / "apps/__init__.py").read_text()
    scope: dict = {}
    exec(compile(text, "apps", "exec"), scope)
    assert list(scope["STUDIES"]) == sorted([*apps.STUDIES, NAME])
    assert scope["STUDIES"][NAME] == "trellis.apps.trial_study"
    before = tomllib.loads((ROOT / "pyproject.toml").read_text())
    after = tomllib.loads((checkout / "pyproject.toml").read_text())
    settings = after["tool"]["flwr"]["app"]["config"].pop(NAME)
    assert after == before
    assert (settings["lambda"], settings["method"], settings["epsilon"]) == (0.001, "auto", 1.0)
    assert checkout / "tests/flower/test_trial_study.py" in made
    for path in made:
        assert not {"my-study", "my_study", "MyStudy"} & set(path.read_text().split())
        assert "my_study" not in path.as_posix()


def test_a_file_that_is_there_is_left_as_it_is(checkout):
    there = checkout / "tests" / "flower" / "test_trial_study.py"
    there.parent.mkdir()
    there.write_text("mine")
    before = files(checkout)
    with pytest.raises(ConfigError, match="is there already, and nothing is overwritten"):
        making.make_study(NAME, checkout)
    assert files(checkout) == before


def test_a_study_that_cannot_be_entered_leaves_nothing(checkout):
    path = checkout / "apps/__init__.py"
    path.write_text(path.read_text().replace("STUDIES = {", "OTHERS = {"))
    before = files(checkout)
    with pytest.raises(ConfigError, match="no STUDIES to enter"):
        making.make_study(NAME, checkout)
    assert files(checkout) == before
    assert not (checkout / "apps/trial_study").exists()


def test_outside_a_clone_a_package_is_advised(tmp_path):
    with pytest.raises(ConfigError, match="--package DIR"):
        making.make_study(NAME, tmp_path)


def test_a_package_has_the_study_its_tests_and_a_flower_app(tmp_path, capsys):
    folder = tmp_path / NAME
    assert main(["new", NAME, "--package", str(folder)]) == 0
    assert "flwr run ." in capsys.readouterr().out
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["trellis.studies"] == {NAME: "trial_study"}
    app = project["tool"]["flwr"]["app"]
    assert app["components"]["clientapp"] == "trellis.apps.dispatch:client_app"
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    common = {key: value for key, value in ours.items() if not isinstance(value, dict)}
    mine = {key: value for key, value in app["config"].items() if not isinstance(value, dict)}
    assert mine == {**common, "study": NAME}
    assert {"client_app.py", "server_app.py", "strategy.py"} <= {
        path.name for path in (folder / "trial_study").iterdir()
    }
    assert (folder / "tests" / "test_strategy.py").is_file()
    assert "*.fab" in (folder / ".gitignore").read_text()
    for name, text in files(folder).items():
        assert b"my_study" not in text, name
        assert b"my-study" not in text, name
        assert b"trellis.apps.trial_study" not in text, name


def test_a_package_is_not_made_over_files_nor_beside_a_package_of_its_name(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["new", NAME, "--package", str(tmp_path)]) == 1
    assert "is not an empty folder" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert main(["new", "numpy", "--package", str(tmp_path / "n")]) == 1
    assert "Python finds another package 'numpy'" in capsys.readouterr().out
    assert not (tmp_path / "n").exists()
