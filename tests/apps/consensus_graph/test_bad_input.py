"""Bad input, from the command line as a user meets it: one clear line, nothing computed is lost."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.command import main

STUDY = "consensus-graph"
GOOD = "a,b,c\n1,2,3\n2,1,0\n0,5,1\n4,4,2\n"


def fails(capsys, *arguments) -> str:
    assert main(["run", STUDY, *map(str, arguments)]) == 1
    text = capsys.readouterr().out
    assert "Traceback" not in text
    assert "error:" in text
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n1,,3\n2,1,0\n", "row 1, column 'b' is missing"),
        ("a,b,c\n1,2,3\n2,one,0\n", "row 2, column 'b' is 'one', not a number"),
        ("a,b,c\n1,2,3\n2,2,0\n", "column 'b' is constant"),
        ("a,b,c\n1,2,3\n", "1 row of data; at least 2"),
        ("a,b,d\n1,2,3\n2,1,0\n", "it lacks 'c' and adds 'd'"),
        ("b,a,c\n1,2,3\n2,1,0\n", "the same names in another order"),
        ("a,b\n1,2\n2,1\n", "it lacks 'c'; give"),
        ("", "empty; needs a header row"),
    ],
)
def test_one_bad_file_among_good_ones(tmp_path, capsys, text, message):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(GOOD)
    (tmp_path / "zed.csv").write_text(text)
    shown = fails(capsys, "--data", tmp_path, "--out", tmp_path / "out")
    assert message in shown
    assert "zed" in shown


def test_a_file_that_cannot_be_opened(tmp_path, capsys):
    (tmp_path / "one.csv").write_text(GOOD)
    (tmp_path / "two.csv").symlink_to(tmp_path / "one.csv")
    (tmp_path / "zed.npz").write_bytes(b"PK\x03\x04 cut short")
    assert "zed.npz: not a readable npz" in fails(capsys, "--data", tmp_path)


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert "no such folder" in fails(capsys, "--data", tmp_path / "nowhere")


def test_fewer_files_than_clients(tmp_path, capsys):
    (tmp_path / "one.csv").write_text(GOOD)
    shown = fails(capsys, "--data", tmp_path, "--set", "clients=3")
    assert "holds 1 files" in shown


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("rho=-1", "rho=-1.0: must not be below 0"),
        ("clients=0", "clients=0: must be >= 1"),
        ("rhho=1", "did you mean 'rho'?"),
        ("rho", "write KEY=VALUE"),
        ("method=best", "use one of fedgl, igl, fedavg"),
        ("seed=3", "seed: unknown setting"),
    ],
)
def test_a_bad_setting(capsys, assignment, message):
    assert message in fails(capsys, "--set", assignment)


def test_a_bad_settings_file(tmp_path, capsys):
    path = tmp_path / "s.toml"
    assert "cannot be read" in fails(capsys, "--config", path)
    path.write_text("rho = = 3")
    assert "not a TOML file" in fails(capsys, "--config", path)
    path.write_text('study = "other"')
    assert "settings of another study" in fails(capsys, "--config", path)
    path.write_text("[consensus-graph]\nrho = 0.0\n")
    assert "rho=0.0: must be > 0" in fails(capsys, "--config", path)


def test_a_resume_of_nothing(tmp_path, capsys):
    assert "holds no run" in fails(capsys, "--resume", tmp_path)


def test_a_resume_with_another_setting(tmp_path, capsys):
    base = ["run", STUDY, "--set", "nodes=5", "--set", "rounds=3", "--out", str(tmp_path / "r")]
    assert main(base) == 0
    assert "beta=0.05, this run has beta=0.5" in fails(
        capsys, "--resume", tmp_path / "r", "--set", "beta=0.5"
    )
    # and nothing of the finished run is lost
    assert np.load(tmp_path / "r" / "result.npz")["weights"].shape == (5, 10)


def test_two_nodes_are_enough_and_one_is_not(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("a,b\n1,2\n2,0\n5,1\n")
    assert main(["run", STUDY, "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 0
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("a\n1\n2\n5\n")
    assert "a graph needs at least 2 variables" in fails(capsys, "--data", tmp_path)


def test_one_client_is_a_federation_too(tmp_path):
    (tmp_path / "one.csv").write_text(GOOD)
    assert main(["run", STUDY, "--data", str(tmp_path)]) == 0
