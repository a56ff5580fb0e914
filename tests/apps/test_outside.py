"""Studies of other packages: found by entry point or in a bundle, refused by name, never looked for
on behalf of our own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trellis
from trellis import apps
from trellis.apps import outside
from trellis.apps.command import main
from trellis.apps.command.new.making import make_package
from trellis.apps.common.runner import app_folder
from trellis.apps.common.settings import ConfigError, config_class

ROOT = Path(__file__).parents[2]
NAME, PACKAGE = "trial-pool", "trial_pool"


def install(site: Path, distribution: str, **points: str) -> None:
    """Let a folder on the path say that a distribution with entry points is installed."""
    info = site / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n"
    )
    lines = [f"{name.replace('_', '-')} = {value}" for name, value in points.items()]
    info.joinpath("entry_points.txt").write_text("\n".join(["[trellis.studies]", *lines]) + "\n")


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder on the path of this process, empty."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / NAME
    make_package(NAME, folder)
    return folder


def trellis_command(path: list[Path], *arguments: str, code: int = 0) -> str:
    """Run the command in a process of its own, elsewhere, with folders on its path."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])),
        "COLUMNS": "300",
    }
    command = [sys.executable, "-m", "trellis", *arguments]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_an_installed_package_is_listed_run_and_reported(package, tmp_path):
    install(tmp_path, "trial-pool", **{NAME: PACKAGE})
    # Elsewhere than its pyproject.toml, as where it is installed for good.
    (tmp_path / PACKAGE).symlink_to(package / PACKAGE)
    listed = " ".join(trellis_command([tmp_path], "list").split())
    assert "trial-pool a linear model" in listed
    assert "(package trial-pool)" in listed
    out = tmp_path / "out"
    run = ("run", NAME, "--set", "privacy=dp", "--set", "clients=3", "--out", str(out))
    assert "completed" in trellis_command([tmp_path], *run)
    assert "What was learned" in (out / "report.html").read_text()
    assert "completed" in trellis_command([tmp_path], "run", "--resume", str(out))
    near = trellis_command([tmp_path], "run", "trial-pol", code=2)
    assert "did you mean trial-pool?" in near


def test_python_finds_it_too(package, site):
    install(site, "trial-pool", **{NAME: PACKAGE})
    (site / PACKAGE).symlink_to(package / PACKAGE)
    result = trellis.run(NAME, clients=3, samples="20")
    assert (result.study, result.status) == (NAME, "completed")
    assert config_class(NAME).study == NAME
    assert result.headline["records"] == 60
    frames = trellis.sample(NAME, clients=3)
    assert result.predict(frames["ward-1"].drop(columns="y")).shape == (100,)


def test_a_bundle_says_what_is_in_it_and_nothing_is_installed(package, monkeypatch):
    """As on a device: Flower puts the bundle's folder on the path."""
    monkeypatch.syspath_prepend(str(package))
    assert apps.study_package(NAME) == PACKAGE
    (found,) = [study for study in outside.outside_studies() if study.name == NAME]
    assert found.source == f"folder {package}"
    assert app_folder(NAME) == package


def test_a_study_that_nobody_has_is_told_with_all_that_are_there(site):
    install(site, "trial-pool", **{NAME: PACKAGE})
    with pytest.raises(
        ConfigError, match=r"study='nobody': use one of .*server-graph, .*trial-pool"
    ):
        apps.study_module("nobody", "config")


def test_a_study_with_the_name_of_ours_is_told_and_ours_is_run(site, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    install(site, "impostor", server_graph="impostor.study")
    assert apps.study_package("server-graph") == "trellis.apps.server_graph"
    assert main(["list"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "study 'server-graph' of impostor.study (package impostor): Trellis has a study" in shown


def test_a_package_that_cannot_be_loaded_is_told_with_its_name_and_the_study_s(
    site, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "300")
    install(site, "gone", gone_study="gone_package.study")
    install(site, "broken", broken_study="broken_package")
    (site / "broken_package").mkdir()
    (site / "broken_package" / "__init__.py").write_text("1 / 0\n")
    assert main(["run", "gone-study"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "study 'gone-study': gone_package.study.config cannot be loaded" in shown
    assert "No module named 'gone_package'" in shown
    with pytest.raises(ImportError, match=r"'broken-study': broken_package\.config .*ZeroDivision"):
        apps.study_module("broken-study", "config")
    assert main(["list"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "ZeroDivisionError" in shown
    assert "server-graph" in shown  # the others are listed all the same


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (
            {"one": {"twin": "a.study"}, "two": {"twin": "b.study"}},
            r"a\.study \(package one\) and b",
        ),
        ({"one": {"twin": "a.study:Config"}}, "name the package alone"),
    ],
)
def test_two_packages_with_one_study_and_odd_entries_are_refused(site, points, words):
    for distribution, own in points.items():
        install(site, distribution, **own)
    with pytest.raises(ConfigError, match=words):
        apps.study_module("twin", "config")


def test_a_package_without_a_flower_app_says_how_to_install_it(site, package):
    install(site, "trial-pool", **{NAME: PACKAGE})
    (site / PACKAGE).mkdir()
    (site / PACKAGE / "__init__.py").write_text("")
    with pytest.raises(ConfigError, match=r"trial_pool: no pyproject\.toml .* pip install -e"):
        app_folder(NAME)


def test_for_a_study_of_ours_nothing_is_looked_up():
    """On a device every message would pay for it."""
    code = (
        "import sys\nfrom trellis import apps\n"
        "apps.study_module('consensus-graph', 'config')\n"
        "from trellis.apps.command import command_parser\n"
        "command_parser().parse_args(['run', 'consensus-graph'])\n"
        "print('trellis.apps.outside' in sys.modules, 'importlib.metadata' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
