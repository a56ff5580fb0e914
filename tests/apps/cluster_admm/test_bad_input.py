"""Bad input, as a user meets it: one clear line that names it; nothing computed is lost."""

from __future__ import annotations

import re

import numpy as np
import pytest
from flwr.app import ConfigRecord

from trellis.apps import run
from trellis.apps.command import main
from trellis.apps.common.results import RunResult
from trellis.sim.faults import (
    Nonsense,
    huge,
    infinite,
    lying_shape,
    not_a_number,
    without_arrays,
    without_records,
    wrong_shape,
)
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError

STUDY = "cluster-admm"
GOOD = "y,a,b\n1,2,3\n-1,1,0\n1,5,1\n-1,4,2\n"
SMALL = {
    "servers": 3, "topology": "ring", "clients": 9, "clusters": "2", "features": 3,
    "samples": "6-9", "rounds": 6, "tau": 0.2,
}  # fmt: skip


def fails(capsys, *arguments) -> str:
    assert main(["run", STUDY, *map(str, arguments)]) == 1
    text = capsys.readouterr().out
    assert "Traceback" not in text
    assert "error:" in text
    return " ".join(text.split())


def options(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({"rhoo": 1}, "rhoo: unknown setting of cluster-admm; did you mean 'rho'?"),
        ({"method": "best"}, "use one of pgfl, gfl, clusterfl, local, fedavg"),
        ({"rho": 0}, "rho=0.0: must be > 0"),
        ({"rho": -1}, "rho=-1.0: must not be below 0"),
        ({"rho": "nan"}, "rho=nan: must be > 0"),
        ({"rho": "inf"}, "rho=inf: must be > 0"),
        ({"rho": "big"}, "rho="),
        ({"tau": 1.5}, "tau=1.5: must be between 0 and 1"),
        ({"tau": -0.1}, "tau=-0.1: must be between 0 and 1"),
        ({"tau": "nan"}, "tau=nan: must be between 0 and 1"),
        ({"tau-decay": 2}, "tau-decay=2.0: must be between 0 and 1"),
        ({"zeta": 0}, "zeta=0.0: must be above 0 and at most 1"),
        ({"zeta": 1.01}, "zeta=1.01: must be above 0 and at most 1"),
        ({"phi0": 0}, "phi0=0.0: must be > 0"),
        ({"phi0": -0.001}, "phi0=-0.001: must be > 0"),
        ({"bound": 0}, "bound=0.0: must be > 0"),
        ({"clip-features": 0}, "clip-features=0.0: must be > 0"),
        ({"clip-target": -1}, "clip-target=-1.0: must be > 0"),
        ({"clip-features": "inf"}, "clip-features=inf: must be > 0"),
        ({"ridge": -0.1}, "ridge=-0.1: must be >= 0"),
        ({"clusters": 0}, "clusters='0': a whole number >= 1, or auto:Q"),
        ({"clusters": "three"}, "clusters='three': a whole number >= 1, or auto:Q"),
        ({"clusters": "auto:0"}, "clusters='auto:0': a whole number >= 1, or auto:Q"),
        ({"clusters": 5, "clients": 4}, "clusters='5': more than clients=4"),
        ({"samples": 0}, "samples='0': a whole number, or a range such as 2-9"),
        ({"samples": "9-2"}, "samples='9-2': a whole number, or a range such as 2-9"),
        ({"samples": "few"}, "samples='few': a whole number, or a range such as 2-9"),
        ({"features": 0}, "features=0: must be >= 1"),
        ({"similarity": -1}, "similarity=-1.0: must be >= 0"),
        ({"noise": -1}, "noise=-1.0: must be >= 0"),
        ({"servers": 0}, "servers=0: must be >= 1"),
        ({"topology": "rings"}, "topology='rings'"),
        ({"topology": "random:99"}, "topology='random:99'"),
        ({"mixing": "best"}, "mixing='best': use one of paper, exact"),
        ({"loss": "hinge"}, "loss='hinge': use one of ridge, logistic"),
        ({"assign-every": 0}, "assign-every=0: must be >= 1"),
        ({"sample": -1}, "sample=-1: must be >= 0"),
        ({"sample": 151}, "sample=151: more than clients=150"),
        ({"delta": 0}, "delta=0.0: must be between 0 and 1"),
        ({"privacy": "some"}, "privacy='some': use one of none, paper, dp"),
    ],
    ids=str,
)
def test_a_bad_setting(capsys, assignments, message):
    assert message in fails(capsys, *options(assignments))


def test_ten_servers_do_not_fit_a_graph_of_four(tmp_path, capsys):
    np.savez(tmp_path / "m.npz", A=np.full((4, 4), 0.25))
    shown = fails(capsys, *options({"topology": tmp_path / "m.npz"}))
    assert "servers = 10" in shown
    assert "has 4" in shown


# --- files ---------------------------------------------------------------------------------------

FILES = {"servers": 2, "topology": "complete", "method": "gfl", "clusters": 2, "rounds": 2}


def read_with(folder, capsys, **settings) -> str:
    """Run on the folder's files and return the error."""
    return fails(capsys, "--data", folder, *options(FILES | settings))


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y,a,b\n1,,3\n-1,1,0\n", "zed.csv: row 1, column 'a' is missing"),
        ("y,a,b\n1,2,3\n-1,nan,0\n", "zed.csv: row 2, column 'a' is nan (1 such cells)"),
        ("y,a,b\n1,2,3\n-1,x,0\n", "zed.csv: row 2, column 'a'"),
        ("y,a,b\n1,2,3\n-1,0\n", "zed.csv: row 2 has 2 cells, the header 3"),
        ("y,a,a\n1,2,3\n", "zed.csv"),
        ("t,a,b\n1,2,3\n-1,1,0\n", "zed.csv: no column 'y' among t, a, b"),
        ("y\n1\n2\n", "zed.csv: no features; 'y' is the only column"),
        ("y,a,c\n1,2,3\n", "client zed has other variables than one: it lacks 'b' and adds"),
        ("y,a\n1,2\n-1,1\n", "client zed has other variables than one: it lacks 'b'"),
        ("y,a,b,c\n1,2,3,4\n", "client zed has other variables than one: it adds 'c'"),
        ("y,b,a\n1,2,3\n", "client zed has other variables than one: the same names in another"),
        ("", "zed.csv: empty; needs a header row"),
    ],
)
def test_one_bad_file_among_good_ones_is_named(folder, capsys, text, message):
    (folder / "zed.csv").write_text(text)
    assert message in read_with(folder, capsys)


X, Y = np.arange(8.0).reshape(4, 2), np.array([1.0, -1.0, 1.0, -1.0])
GOOD_ARRAYS = {"X": X, "y": Y, "columns": np.array(["a", "b"])}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": None}, "zed.npz: holds X, columns; needs the targets 'y'"),
        ({"X": None}, "zed.npz: holds y, columns; needs 'X'"),
        ({"X": X[:, 0]}, "zed.npz: X is float64 (4,); a table of numbers is needed"),
        ({"X": X[:3]}, "zed.npz: y has shape (4,), X has 3 rows; one y a row"),
        ({"y": Y[:, None]}, "zed.npz: y has shape (4, 1), X has 4 rows; one y a row"),
        ({"X": X[:, :0]}, "zed.npz: no features; X has no columns"),
        ({"X": np.where(X == 5.0, np.nan, X)}, "zed.npz: row 3, column 'b' is nan"),
        ({"y": np.where(Y > 0.0, np.inf, Y)}, "zed.npz: row 1, 'y' is inf (2 such rows)"),
        ({"y": np.array(["p", "q", "p", "q"])}, "zed.npz: y is <U1; numbers are needed"),
        ({"columns": np.array(["a"])}, "zed.npz: 1 column names for 2 columns"),
    ],
    ids=str,
)
def test_a_bad_npz_file_is_named(folder, capsys, arrays, message):
    content = {name: array for name, array in (GOOD_ARRAYS | arrays).items() if array is not None}
    np.savez(folder / "zed.npz", **content)
    assert message in read_with(folder, capsys)


def test_a_constant_column_is_an_intercept(folder):
    rng = np.random.default_rng(0)
    for name in ("one", "two"):
        (folder / f"{name}.csv").unlink()
        rows = rng.normal(size=(40, 1))
        lines = [f"{3.0 + 2.0 * x + 0.01 * rng.normal()},{x},1" for (x,) in rows]
        (folder / f"{name}.csv").write_text("y,x,one\n" + "\n".join(lines))
    settings = FILES | {"rounds": 200, "ridge": 1e-6, "standardise": "none", "rho": 3.0}
    result = run(STUDY, settings, data=folder, report=False)
    np.testing.assert_allclose(result.arrays["models"][0, 0], [2.0, 3.0], atol=0.02)


@pytest.mark.parametrize("wrong", ["2", "0.5", "nan"])
def test_labels_that_are_none_are_named(folder, capsys, wrong):
    (folder / "zed.csv").write_text(GOOD + f"{wrong},1,1\n")
    shown = read_with(folder, capsys, loss="logistic")
    assert "zed.csv" in shown
    assert "row 5" in shown
    assert wrong in shown


def test_labels_0_and_1_are_those_of_minus_1_and_1(folder):
    settings = FILES | {"loss": "logistic", "rounds": 20}
    signs = run(STUDY, settings, data=folder, report=False)
    (folder / "two.csv").write_text(re.sub("^-1", "0", GOOD, flags=re.MULTILINE))
    mixed = run(STUDY, settings, data=folder, report=False)
    np.testing.assert_array_equal(signs.arrays["models"], mixed.arrays["models"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("client,server,cluster\none,0,0\n", "client 'two' stands there 0 times; give it one row"),
        ("client,server,cluster\none,0,0\ntwo,0,0\ntwo,1,1\n", "client 'two' stands there 2"),
        (
            "client,server,cluster\none,0,0\ntwo,2,1\n",
            "row 2: server='2'; the 2 servers are numbered from 0 to 1",
        ),
        (
            "client,server,cluster\none,0,0\ntwo,-1,1\n",
            "row 2: server='-1'; the 2 servers are numbered from 0 to 1",
        ),
        (
            "client,server,cluster\none,0,0\ntwo,1,2\n",
            "row 2: cluster='2'; the 2 clusters are numbered from 0 to 1",
        ),
        (
            "client,server,cluster\none,0,0\ntwo,1,\n",
            "row 2: cluster=''; the 2 clusters are numbered from 0 to 1",
        ),
        ("client,server\none,0\ntwo,1\n", "needs the columns client and cluster"),
        ("client,cluster\none,0\ntwo,1\n", "needs the columns client and server"),
        ("name,server,cluster\none,0,0\n", "needs the columns client and server"),
        ("", "needs the columns client and server"),
    ],
)
def test_an_assignment_that_places_nobody_is_refused_by_its_row(folder, capsys, table, message):
    (folder / "assignment.csv").write_text(table)
    shown = read_with(folder, capsys, method="pgfl")
    assert f"assignment.csv: {message}" in shown


def test_without_an_assignment_nobody_knows_a_file_s_cluster(folder, capsys):
    shown = read_with(folder, capsys, method="pgfl")
    assert "one: which of the 2 clusters is it in?" in shown
    assert "clusters=auto:2" in shown


def test_rows_of_others_in_the_assignment_do_no_harm(folder):
    (folder / "assignment.csv").write_text(
        "client,server,cluster\nstranger,9,9\none,1,0\ntwo.csv,0,1\n"
    )
    settings = FILES | {"method": "pgfl"}
    result = run(STUDY, settings, data=folder, report=False)
    assert result.arrays["homes"].tolist() == [1, 0]
    assert result.arrays["clusters"].tolist() == [0, 1]


# --- clients that mean harm ----------------------------------------------------------------------


def two_arrays(reply):
    content = reply.content
    known = wire.arrays(content["arrays"])
    content["arrays"] = wire.record({**known, "more": np.zeros(3)})
    return content


def halved(reply):
    """Return the model in half the precision that the wire has."""
    content = reply.content
    model = wire.arrays(content["arrays"])["model"]
    content["arrays"] = wire.record({"model": model.astype(np.float32)})
    return content


def settings_for_arrays(reply):
    reply.content["arrays"] = ConfigRecord({"model": 1.0})
    return reply.content


MALICE = {
    "nan": (not_a_number, "reply rejected: model has 3 entries that are not finite"),
    "infinite": (infinite, "reply rejected: model has 3 entries that are not finite"),
    "huge": (huge, "reply rejected: model has an entry of size 1.79769e+308"),
    "shape": (wrong_shape, "reply rejected: model is float64 of shape (4,), not float64"),
    "lying": (lying_shape, "reply rejected: array of shape (4,)"),
    "more arrays": (two_arrays, "reply rejected: holds ['model', 'more'], not a model"),
    "half": (halved, "reply rejected: model is float32 of shape (3,), not float64"),
    "no arrays": (without_arrays, "reply rejected"),
    "nothing": (without_records, "reply rejected"),
    "settings": (settings_for_arrays, "reply rejected: a ConfigRecord where arrays"),
}


@pytest.mark.parametrize("what", MALICE)
def test_a_bad_reply_is_named_and_passed_over(what, caplog):
    change, reason = MALICE[what]
    bad = {4: Nonsense(category="train", since=3, change=change)}
    result = run(STUDY, SMALL, faults=bad, report=False)
    assert result.status == "completed"
    assert [client["failures"] for client in result.clients] == [0] * 4 + [4] + [0] * 4
    assert result.clients[4]["last_failure"].startswith(reason)
    assert f"round 3: client client-5 left out: {reason}" in caplog.text
    assert any("Client client-5 was left out of 4 rounds" in note for note in result.notes)
    assert np.all(np.isfinite(result.arrays["models"]))


def test_a_rejected_reply_counts_as_none_at_all():
    models = [
        run(
            STUDY,
            SMALL,
            faults={4: Nonsense(category="train", since=3, change=change)},
            report=False,
        ).arrays["models"]
        for change in (not_a_number, two_arrays, huge)
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0], other)


def test_where_all_are_bad_the_run_ends_with_their_reasons_and_keeps_its_rounds(tmp_path):
    bad = {k: Nonsense(category="train", since=4, change=not_a_number) for k in range(9)}
    with pytest.raises(StudyError, match=r"round 4: no usable reply\. client-1: reply rejected"):
        run(STUDY, SMALL, faults=bad, out=tmp_path, report=False)
    kept = RunResult.load(tmp_path)
    assert kept.status == "failed"
    assert [row["round"] for row in kept.metrics] == [1.0, 2.0, 3.0]
    assert "round 4: no usable reply" in kept.notes[0]


# --- divergence ----------------------------------------------------------------------------------


def test_a_rho_too_small_ends_the_run_and_says_so_and_keeps_what_was_computed(tmp_path, capsys):
    settings = {
        "rho": 0.3, "servers": 4, "topology": "ring", "clients": 16, "features": 5,
        "samples": "6-9", "rounds": 300,
    }  # fmt: skip
    shown = fails(capsys, "--out", tmp_path, *options(settings))
    found = re.search(r"round (\d+): the models diverge", shown)
    assert found is not None
    assert "rho=0.3 is too small for tau=0.4" in shown
    assert "second eigenvalue of (9) 0.333" in shown
    assert "use a larger rho" in shown
    kept, last = RunResult.load(tmp_path), int(found[1])
    assert kept.status == "failed"
    assert [row["round"] for row in kept.metrics] == list(range(1, last))
    assert all(np.isfinite(row["nmsd-servers"]) for row in kept.metrics)
    assert any("the models diverge" in note for note in kept.notes)
    # The advice helps.
    steady = run(STUDY, settings | {"rho": 3.0, "rounds": 100}, report=False)
    assert steady.headline["nmsd-servers"] < -10.0
