"""Bad input, from the command line as a user meets it: one clear line, nothing computed is lost."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.command import main

STUDY = "server-graph"
GOOD = "y,a,b\n1,2,3\n-1,1,0\n1,5,1\n-1,4,2\n"


def fails(capsys, *arguments) -> str:
    assert main(["run", STUDY, *map(str, arguments)]) == 1
    text = capsys.readouterr().out
    assert "Traceback" not in text
    assert "error:" in text
    return " ".join(text.split())


def setting(**settings):
    return [
        part
        for key, value in settings.items()
        for part in ("--set", f"{key.replace('_', '-')}={value}")
    ]


SMALL = {"servers": 3, "clients": 9, "samples": 10, "rounds": 2}

MATRICES = {
    "not symmetric": (
        [[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.2, 0.1, 0.7]],
        "not symmetric, a[0, 1] = 0.3 but a[1, 0] = 0.2",
    ),
    "not stochastic": (
        [[0.6, 0.3, 0.1], [0.3, 0.6, 0.2], [0.1, 0.2, 0.7]],
        "row 1 sums to 1.1, not 1",
    ),
    "apart": (
        [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]],
        "no path leads from server 0 to server 2",
    ),
    "zero diagonal": (
        [[0.0, 0.5, 0.5], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25]],
        "a[0, 0] = 0, a server must weigh its own model",
    ),
    "negative": (
        [[1.2, -0.1, -0.1], [-0.1, 0.6, 0.5], [-0.1, 0.5, 0.6]],
        "a[0, 1] = -0.1 is negative",
    ),
}


@pytest.mark.parametrize("what", MATRICES)
@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_bad_combination_matrix_is_refused_by_the_entry(tmp_path, capsys, what, ending):
    matrix, message = MATRICES[what]
    path = tmp_path / f"m.{ending}"
    if ending == "npz":
        np.savez(path, A=np.array(matrix))
    else:
        np.savetxt(path, np.array(matrix), delimiter=",", fmt="%.17g")
    shown = fails(capsys, *setting(topology=path, **SMALL))
    assert "topology=" in shown
    assert message in shown


def test_a_good_matrix_of_another_number_of_servers(tmp_path, capsys):
    np.savez(tmp_path / "m.npz", A=np.full((4, 4), 0.25))
    shown = fails(capsys, *setting(topology=tmp_path / "m.npz", **SMALL))
    assert "topology=" in shown
    assert "servers = 3" in shown
    assert "has 4" in shown


def test_a_graph_file_that_is_not_there_or_in_parts(tmp_path, capsys):
    shown = fails(capsys, *setting(topology=tmp_path / "none.csv", **SMALL))
    assert "none.csv" in shown
    (tmp_path / "edges.csv").write_text("source,target\na,b\nc,d\n")
    shown = fails(capsys, *setting(topology=tmp_path / "edges.csv", **(SMALL | {"servers": 4})))
    assert "2 components (a, b; c, d); add edges" in shown


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({"method": "best"}, "use one of hybrid, iid, none, masked, fedavg"),
        ({"servers": 0}, "servers=0: must be >= 1"),
        ({"servers": 60}, "clients=50: fewer than servers=60"),
        ({"topology": "rings"}, "topology='rings'"),
        ({"topology": "erdos-renyi:2"}, "topology='erdos-renyi:2'"),
        ({"weights": "average"}, "weights"),
        ({"weights": "best"}, "weights"),
        ({"weights": "own", "topology": "ring"}, "weights = 'own'"),
        ({"step": 0}, "step=0.0: must be > 0"),
        ({"step": 300}, "step=300.0: with ridge=0.01"),
        ({"batch": -1}, "batch=-1: must be >= 0"),
        ({"local-steps": 0}, "local-steps=0: must be >= 1"),
        ({"clip": -1}, "clip=-1.0: must be >= 0"),
        ({"sigma": "nan"}, "sigma=nan: must be >= 0"),
        ({"ridge": -1}, "ridge=-1.0: must be >= 0"),
        ({"spread": -1}, "spread=-1.0: must be >= 0"),
        ({"loss": "hinge"}, "loss='hinge': use one of logistic, least-squares"),
        (
            {"loss": "no.such.Loss"},
            "loss='no.such.Loss': use one of logistic",
        ),
        ({"secure-aggregation": "maybe"}, "secure-aggregation='maybe': use one of auto, on, off"),
        ({"on-server-loss": "wait"}, "on-server-loss='wait': use one of drop, rehome"),
        ({"failures": "3"}, "failures='3': write server:round"),
        ({"failures": "10:3"}, "failures='10:3': servers are numbered 0 to 9"),
        ({"failures": "1:0"}, "failures='1:0': rounds start at 1"),
        ({"method": "fedavg", "failures": "0:3"}, "failures has no effect with method='fedavg'"),
        ({"clients": 1, "servers": 1, "failures": "0:3"}, "in round 3 no server is left"),
        ({"features": 0}, "features=0: must be >= 1"),
        ({"samples": "10,20"}, "samples='10,20': one whole number >= 1 for all clients, or 50"),
        ({"privacy": "dp", "method": "iid"}, "'dp' has method=hybrid or fedavg"),
        ({"privacy": "paper"}, "privacy='paper': epsilon is of the noise between servers"),
        ({"epsilon": 2}, "epsilon has no effect with method='hybrid' and privacy='none'"),
        ({"method": "none", "sigma": 1}, "sigma has no effect with method='none'"),
        ({"sgma": 1}, "did you mean 'sigma'?"),
        ({"sample": 2}, "server 0 asks 2 clients"),
        ({"method": "masked", "topology": "path", "sigma": 0}, "server-0 has one neighbour"),
        (
            {"method": "masked", "topology": "ring", "sigma": 0, "failures": "3:7-9"},
            "in round 7 server-2 has one neighbour",
        ),
    ],
    ids=str,
)
def test_a_bad_setting(capsys, assignments, message):
    assert message in fails(
        capsys, *[p for k, v in assignments.items() for p in ("--set", f"{k}={v}")]
    )


def test_masks_without_noise_are_fine_where_everyone_has_two_neighbours():
    assert main(["run", STUDY, *setting(method="masked", sigma=0, topology="ring", **SMALL)]) == 0


@pytest.mark.parametrize(
    ("method", "message"),
    [("none", "they diverge; lower step"), ("hybrid", "have grown to")],
)
def test_a_step_that_is_too_long_ends_the_run_with_advice(capsys, method, message):
    shown = fails(
        capsys,
        *setting(
            loss="least-squares", step=30, method=method, topology="ring",
            **(SMALL | {"rounds": 400}),
        ),
    )  # fmt: skip
    assert message in shown
    assert "lower step" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y,a,b\n1,,3\n-1,1,0\n", "row 1, column 'a' is missing"),
        ("y,a,b\n1,2,3\n2,1,0\n", "y is 2"),
        ("t,a,b\n1,2,3\n-1,1,0\n", "no column 'y'"),
        ("y,a,c\n1,2,3\n-1,1,0\n", "it lacks 'b' and adds 'c'"),
        ("", "empty; needs a header row"),
    ],
)
def test_one_bad_file_among_good_ones(tmp_path, capsys, text, message):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(GOOD)
    (tmp_path / "zed.csv").write_text(text)
    shown = fails(
        capsys, "--data", tmp_path, "--out", tmp_path / "out",
        *setting(servers=1, topology="complete"),
    )  # fmt: skip
    assert message in shown
    assert "zed" in shown


def test_a_resume_with_another_setting_leaves_the_run_as_it_was(tmp_path, capsys):
    out = ["--out", str(tmp_path / "r")]
    assert main(["run", STUDY, *setting(topology="ring", **SMALL), *out]) == 0
    capsys.readouterr()
    shown = fails(capsys, "--resume", tmp_path / "r", "--set", "step=0.3")
    assert "step=0.1, this run has step=0.3" in shown
    assert np.load(tmp_path / "r" / "result.npz")["models"].shape == (3, 2)
