"""Bad input, from the command line as a user meets it: one clear line, nothing computed is lost."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run
from trellis.apps.command import main
from trellis.apps.common.evaluation.holding import drawn_rows
from trellis.apps.common.seeds import generator
from trellis.apps.common.settings import ConfigError
from trellis.apps.joint_precision.config import JointPrecisionConfig
from trellis.apps.joint_precision.private.concordance import learning_count
from trellis.strategies.core.enrolment import StudyError

STUDY = "joint-precision"
GOOD = "a,b,c\n1,2,3\n2,1,0\n0,5,1\n4,4,2\n3,0,7\n"
SMALL = {"variables": 6, "blocks": 2, "samples": "40"}


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
        ("a,b,c\n1,nan,3\n2,1,0\n", "row 1, column 'b' is nan"),
        ("a,b,c\n1,2,3\n2,inf,0\n", "row 2, column 'b' is inf"),
        ("a,b,c\n1,2,3\n2,one,0\n", "row 2, column 'b' is 'one', not a number"),
        ("a,b,c\n1,2,3\n2,2,0\n5,2,1\n", "column 'b' is constant"),
        ("a,b,c\n1,2,3\n", "1 row of data; at least 2"),
        ("a\n1\n2\n5\n", "'a' is the only column; a graph needs at least 2"),
        (
            "a,b,c\n1,1,3\n2,2,0\n0,0,1\n4,4,2\n",
            "columns 'a' and 'b' put the 4 rows in the same order",
        ),
        (
            "a,b,c\n1,5,-1\n2,2,-2\n0,9,0\n4,7,-64\n",
            "columns 'a' and 'c' put the 4 rows in exactly opposite order",
        ),
        (GOOD.replace("a,b,c", "a,b,d"), "it lacks 'c' and adds 'd'"),
        (GOOD.replace("a,b,c", "b,a,c"), "the same names in another order"),
        ("a,b\n1,2\n2,1\n0,1.5\n", "it lacks 'c'; give"),
        ("a,b,b\n1,2,3\n2,1,0\n", "the column name 'b' stands more than once"),
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


def test_a_duplicated_column_is_no_reason_to_refuse_under_privacy(tmp_path, capsys):
    # One sample decides whether two columns are alike, so a refusal would tell of that sample.
    for name in ("one", "two", "zed"):
        (tmp_path / f"{name}.csv").write_text("a,b,c\n1,1,3\n2,2,0\n0,0,1\n4,4,2\n")
    out = ["--out", str(tmp_path / "out")]
    assert main(["run", "joint-precision", "--data", str(tmp_path), *out]) == 1
    assert "zed.csv: columns 'a' and 'b'" in capsys.readouterr().out
    dp = ["--set", "privacy=dp"]
    assert main(["run", "joint-precision", "--data", str(tmp_path), *dp, *out]) == 0


def test_a_column_that_is_constant_but_for_held_out_rows_is_named(tmp_path, capsys):
    number = 20 - learning_count(20, 0.2)
    rare = np.flatnonzero(drawn_rows(20, number, generator(1, "held out")))[0]
    values = np.random.default_rng(0).normal(size=(20, 2))
    for name in ("east", "west"):
        rows = [f"{a:.3f},{b:.3f},{int(i == rare)}" for i, (a, b) in enumerate(values)]
        (tmp_path / f"{name}.csv").write_text("a,b,rare\n" + "\n".join(rows) + "\n")
    text = fails(capsys, "--data", tmp_path, "--set", "rounds=3")
    for name in ("east", "west"):
        told = f"{name}.csv without its held-out rows: column 'rare' is constant"
        assert text.count(told) == 1
    assert "node " not in text
    assert main(["run", STUDY, "--data", str(tmp_path), "--set", "held-out=0"]) == 0


def test_a_file_that_cannot_be_opened(tmp_path, capsys):
    (tmp_path / "one.csv").write_text(GOOD)
    (tmp_path / "zed.npz").write_bytes(b"PK\x03\x04 cut short")
    assert "zed.npz: not a readable npz" in fails(capsys, "--data", tmp_path)


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert "no such folder" in fails(capsys, "--data", tmp_path / "nowhere")


def test_a_file_that_is_gone_when_the_client_looks_is_named(tmp_path):
    from tests.apps.device_logs import reasons
    from trellis import apps
    from trellis.apps.common.runner import make_run_config
    from trellis.sim.grid import run_local

    np.savez(tmp_path / "a.npz", X=np.random.default_rng(0).normal(size=(20, 4)))
    nodes = [{"data-path": str(tmp_path / name)} for name in ("a.npz", "gone.csv")]
    run_config = make_run_config(STUDY, {"clients": 2}) | {"out": str(tmp_path / "out")}
    with pytest.raises(StudyError, match="device error E2"):
        run_local(apps.server_app, apps.client_app, nodes, run_config)
    (reason,) = reasons(tmp_path / ".gone-trellis")
    assert "gone.csv: cannot be read (No such file" in reason


def test_fewer_files_than_clients(tmp_path, capsys):
    (tmp_path / "one.csv").write_text(GOOD)
    assert "holds 1 files" in fails(capsys, "--data", tmp_path, "--set", "clients=3")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("lambda1=-1", "lambda1=-1.0: must not be below 0"),
        ("lambda2=-0.1", "lambda2=-0.1: must be >= 0"),
        ("lambda1=nan", "lambda1=nan: must be >= 0"),
        ("lambda1=much", "lambda1='much': must be a number"),
        ("rho=0", "rho=0.0: must be > 0"),
        ("rounds=0", "rounds=0: must be >= 1"),
        ("tolerance=-1", "tolerance=-1.0: must be >= 0"),
        ("clients=0", "clients=0: must be >= 1"),
        ("sample=9", "sample=9: more than clients=3"),
        ("lambda3=1", "did you mean 'lambda2'?"),
        ("rho", "write KEY=VALUE"),
        ("method=best", "use one of group, fused, glasso, clime, pooled, one-shot"),
        ("penalty=ridge", "penalty='ridge': use one of group, fused"),
        ("correlation=cosine", "use one of kendall, spearman, pearson"),
        ("indefinite=ignore", "use one of project, refuse"),
        ("acceleration=off", "unknown setting of joint-precision"),
        ("wire=float16", "use one of float64, float32"),
        ("choose=aic", "use one of ebic, stability"),
        ("choose=stability", "needs path and subsamples"),
        ("subsamples=5", "needs path > 0"),
        ("path=-1", "path=-1: must be >= 0"),
        ("gamma=-1", "gamma=-1.0: must be >= 0"),
        ("variables=1", "variables=1: must be >= 2"),
        ("variables=55", "variables=55: not a multiple of blocks=6"),
        ("samples=1", "samples='1': one whole number >= 2"),
        ("samples=10,20", "samples='10,20': one whole number >= 2 for all clients, or 3"),
        ("samples=many", "samples='many'"),
        ("generator=mine", "use one of danaher, shrunk, paper"),
        ("margins=uniform", "use one of nonparanormal, gaussian"),
        ("privacy=some", "use one of none, paper, dp"),
        ("epsilon=0", "epsilon=0.0: must be > 0"),
        ("delta=1", "delta=1.0: must be between 0 and 1"),
        ("screening=maybe", "screening='maybe': must be true or false"),
    ],
)
def test_a_bad_setting(capsys, assignment, message):
    assert message in fails(capsys, "--set", assignment)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"correlation": "pearson"}, "correlation has no effect with method='group' and privacy='"),
        ({"method": "pooled", "clients": 2}, "clients=2: a secure sum needs three"),
        ({"path": 3, "subsamples": 2}, "subsamples has no effect with method='group' and privacy"),
        ({"norm-bound": 1.0}, "norm-bound has no effect with method='group'"),
        ({"sample": 2}, "sample has no effect"),
        ({"indefinite": "refuse"}, "indefinite has no effect"),
        ({"wire": "float32"}, "wire has no effect"),
        ({"lambda1": 0.0}, r"lambda1=0\.0: devices' own graphs need"),
        ({"method": "clime"}, "privacy='dp' with method='clime'"),
        ({"method": "one-shot"}, "privacy='dp' with method='one-shot'"),
    ],
)
def test_what_cannot_be_private_is_refused(settings, message):
    JointPrecisionConfig.from_settings(settings)
    with pytest.raises(ConfigError, match=message):
        JointPrecisionConfig.from_settings({**settings, "privacy": "dp"})


def test_a_path_needs_an_end_above_zero_and_subsamples_a_joint_method():
    with pytest.raises(ConfigError, match=r"lambda1=0\.0: the end of a path must be > 0"):
        JointPrecisionConfig(path=5, lambda1=0.0)
    with pytest.raises(ConfigError, match="subsamples has no effect with method='glasso'"):
        JointPrecisionConfig(path=5, subsamples=2, method="glasso")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 3.0}, r"epsilon has no effect.*it has with privacy=dp"),
        ({"method": "glasso", "lambda2": 0.1}, r"lambda2 has no effect.*method=group or fused"),
        ({"method": "clime", "rho": 2.0}, "rho has no effect"),
        ({"method": "one-shot", "norm_bound": 1.0}, "norm-bound has no effect"),
        ({"penalty": "fused"}, r"penalty has no effect.*method=pooled or one-shot"),
        ({"method": "pooled", "privacy": "dp", "penalty": "fused"}, "penalty has no effect"),
    ],
)
def test_a_setting_without_effect_is_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        JointPrecisionConfig(**settings)


# --- problems without a solution -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "lambda2"),
    [("group", 0.0), ("fused", 0.0), ("fused", 0.1), ("glasso", None), ("clime", None)],
)
def test_no_sparsity_with_few_samples_is_refused_with_the_reason(capsys, method, lambda2):
    settings = {**SMALL, "samples": "40,6,40", "lambda1": 0, "method": method}
    settings |= {} if lambda2 is None else {"lambda2": lambda2}
    assignments = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    shown = " ".join(fails(capsys, *assignments).split())
    assert "lambda1=0: client client-2 has 6 samples of 6 variables" in shown
    assert "singular" in shown
    assert "set lambda1 > 0" in shown


@pytest.mark.parametrize("penalty", ["group", "fused"])
def test_pooled_data_are_no_way_around_it(penalty):
    settings = {**SMALL, "samples": "5", "lambda1": 0.0, "method": "pooled", "penalty": penalty}
    with pytest.raises(StudyError, match="client client-1 has 5 samples of 6 variables"):
        run(STUDY, {**settings, "lambda2": 0.0})
    if penalty == "group":
        assert run(STUDY, {**settings, "lambda2": 0.2}).headline["gap"] <= 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {"samples": "60", "lambda2": 0.0},
        {"samples": "60", "lambda2": 0.05, "method": "fused"},
        {"samples": "60", "method": "glasso"},
        # Every entry is in a norm, which grows without end as well.
        {"samples": "5", "lambda2": 0.2, "method": "group"},
    ],
)
def test_no_sparsity_is_allowed_where_there_is_a_minimum(settings):
    result = run(STUDY, {**SMALL, "lambda1": 0.0, **settings})
    assert result.headline["gap"] <= 1e-6
    if settings["samples"] == "60" and settings.get("lambda2") == 0.0:
        # With no penalty at all: the inverse of the correlation matrix.
        from .federations import correlations

        expected = np.linalg.inv(correlations(6, 2, "60"))
        np.testing.assert_allclose(result.arrays["sparse"], expected, atol=5e-3)


def test_an_indefinite_matrix_is_refused_where_that_is_asked_for():
    settings = {"variables": 60, "blocks": 6, "samples": "20"}
    with pytest.raises(
        StudyError, match=r"client 1: the correlation matrix is not positive semidefinite "
        r"\(smallest eigenvalue -0\.\d+\); use more samples or indefinite='project'",
    ):  # fmt: skip
        run(STUDY, {**settings, "indefinite": "refuse"})
    run(STUDY, {**settings, "samples": "400", "indefinite": "refuse", "rounds": 2})


def test_an_indefinite_matrix_is_projected_with_a_warning_that_has_the_number(caplog):
    result = run(STUDY, {"variables": 60, "blocks": 6, "samples": "20", "lambda1": 0.4})
    smallest = result.arrays["smallest_eigenvalue"]
    assert np.all(smallest < -0.01)
    for number, value in enumerate(smallest, start=1):
        assert f"synthetic client {number}: the correlation matrix is not positive" in caplog.text
        assert f"smallest eigenvalue {value:.3g}" in caplog.text


# --- small federations ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["group", "fused"])
def test_one_client_is_a_federation_too_and_is_told_that_it_is_alone(caplog, method):
    result = run(STUDY, {**SMALL, "clients": 1, "method": method})
    assert result.headline["gap"] <= 1e-6
    assert any(note.startswith("There is one client: nothing is shared") for note in result.notes)
    assert "There is one client" in caplog.text
    # Group is more sparsity, fused is none at all.
    alone = {**SMALL, "clients": 1, "method": "glasso", "tolerance": 1e-10}
    lambda1 = 0.15 if method == "group" else 0.1
    same = run(STUDY, {**alone, "lambda1": lambda1})
    np.testing.assert_allclose(result.arrays["sparse"], same.arrays["sparse"], atol=1e-3)


def test_two_variables_and_two_rows_of_data_are_enough_or_named(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text("a,b\n1,2\n2,0\n5,1\n")
    assert main(["run", STUDY, "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 0
    capsys.readouterr()
    (tmp_path / "two.csv").write_text("a,b\n1,2\n2,3\n")
    assert "columns 'a' and 'b' put the 2 rows in the same order" in fails(
        capsys, "--data", tmp_path
    )


# --- settings files and resuming -----------------------------------------------------------------


def test_a_bad_settings_file(tmp_path, capsys):
    path = tmp_path / "s.toml"
    assert "cannot be read" in fails(capsys, "--config", path)
    path.write_text('study = "other"')
    assert "settings of another study" in fails(capsys, "--config", path)
    path.write_text("[joint-precision]\nlambda1 = -2.0\n")
    assert "lambda1=-2.0: must be >= 0" in fails(capsys, "--config", path)


def test_a_resume_with_another_setting_leaves_the_run_as_it_was(tmp_path, capsys):
    base = ["run", STUDY, "--set", "variables=6", "--set", "blocks=2", "--out", str(tmp_path / "r")]
    assert main(base) == 0
    capsys.readouterr()
    assert "lambda1=0.1, this run has lambda1=0.2" in fails(
        capsys, "--resume", tmp_path / "r", "--set", "lambda1=0.2"
    )
    assert np.load(tmp_path / "r" / "result.npz")["sparse"].shape == (3, 6, 6)


def test_lambda1_of_zero_is_refused_where_more_samples_still_give_a_singular_matrix(tmp_path):
    """With Kendall's tau a matrix may be indefinite although n > p; projected it is singular."""
    with pytest.raises(Exception, match=r"singular.*lambda1=0|lambda1=0.*singular"):
        run("joint-precision", {"lambda1": 0.0, "method": "glasso", "variables": 54, "samples": 60})
