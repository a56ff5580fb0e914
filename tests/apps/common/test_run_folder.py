"""A run's folder: refused runs change nothing in it, and a forced one leaves nothing of the old."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from trellis.apps.command import main
from trellis.apps.common.files import run_folder
from trellis.apps.common.results import FolderLock, RunResult
from trellis.apps.common.runner import make_run_config, run
from trellis.apps.common.settings import ConfigError
from trellis.strategies.core.checkpoint import CheckpointError
from trellis.strategies.core.enrolment import StudyError

STUDY = "consensus-graph"
# With a checkpoint, and without any: clients that learn alone at home have no rounds.
KINDS = [{"rounds": 3, "tolerance": 0.0}, {"privacy": "dp", "method": "igl"}]


def tables(folder, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for name in ("a", "b", "c"):
        rows = "\n".join(",".join(map(repr, map(float, row))) for row in rng.normal(size=(12, 4)))
        (folder / f"{name}.csv").write_text(f"w,x,y,z\n{rows}\n")
    return folder


def content(folder):
    """Return the bytes of every file."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def gone(data):
    (data / "b.csv").unlink()


def shorter(data):
    text = (data / "b.csv").read_text().splitlines()[:-2]
    (data / "b.csv").write_text("\n".join(text) + "\n")


def renamed(data):
    (data / "b.csv").write_text((data / "b.csv").read_text().replace("w,", "v,", 1))


def bad(data):
    (data / "b.csv").write_text("w,w\nno table\n")


REFUSED = {
    "changed": (lambda d: None, {"settings": {"alpha": 9.0}}, "alpha=9.0"),
    "seed": (lambda d: None, {"seed": 2}, "seed=2"),
    "data": (lambda d: tables(d.parent / "other", 1), {"data": "other"}, "data="),
    "gone": (gone, {}, "clients=3"),
    "gone, not counted": (gone, {"settings": {"clients": 2}}, "clients=2"),
    "shorter": (shorter, {}, "records"),
    "renamed": (renamed, {}, "other variables"),
    "bad": (bad, {}, "stands more than once"),
    "unknown": (lambda d: None, {"settings": {"alhpa": 1.0}}, "unknown setting"),
    "study": (lambda d: None, {"study": "joint-precision"}, ""),
    "value": (lambda d: None, {"settings": {"rounds": "many"}}, "rounds='many'"),
}


@pytest.mark.parametrize("kind", KINDS, ids=["checkpoint", "none"])
def test_a_refused_resume_changes_no_file(tmp_path, kind):
    original = tables(tmp_path / "original")
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(original, data)
    first = run(STUDY, {**kind, "clients": 3}, data=data, out=out)
    before = content(out)
    for spoil, changed, words in REFUSED.values():
        spoil(data)
        settings = {**kind, "clients": 3, **changed.get("settings", {})}
        if "study" in changed:
            settings = {"clients": 3}
        with pytest.raises((ConfigError, CheckpointError, StudyError)) as error:
            run(
                changed.get("study", STUDY),
                settings,
                data=tmp_path / changed.get("data", "data"),
                seed=changed.get("seed", 1),
                out=out,
                resume=True,
            )
        assert words in str(error.value)
        assert content(out) == before, f"{words}: {error.value}"
        shutil.rmtree(data)
        shutil.copytree(original, data)
    again = run(STUDY, {**kind, "clients": 3}, data=data, out=out, resume=True)
    assert again.status == "completed"
    assert [c["name"] for c in again.clients] == ["a", "b", "c"]
    assert again.arrays["weights"].tobytes() == first.arrays["weights"].tobytes()


def test_a_refused_resume_by_the_command_changes_no_file(tmp_path, capsys):
    data, out = tables(tmp_path / "data"), tmp_path / "out"
    assert main(["run", STUDY, "--data", str(data), "--set", "rounds=3", "--out", str(out)]) == 0
    before = content(out)
    for more in (["--set", "rho=3"], ["--seed", "9"], ["--set", "nope=1"], ["--force"]):
        assert main(["run", "--resume", str(out), *more]) == 1
        assert content(out) == before
    assert main(["run", "joint-precision", "--resume", str(out)]) == 1
    assert "holds a run of consensus-graph" in capsys.readouterr().out
    assert main(["run", "--resume", str(out), "--out", str(tmp_path / "elsewhere")]) == 1
    assert content(out) == before
    assert main(["run", "--resume", str(out), "--set", "rounds=4"]) == 0
    assert main(["run", STUDY, "--resume", str(out)]) == 0
    assert RunResult.load(out).config["rounds"] == 4
    before = content(out)
    assert main(["run", "--resume", str(out), "--set", "rounds=1"]) == 1
    assert "resume with rounds=4 or more" in " ".join(capsys.readouterr().out.split())
    assert content(out) == before


def test_a_resumed_run_keeps_its_time_and_what_it_chose(tmp_path):
    names = [f"w{i}" for i in range(6)]
    rng = np.random.default_rng(0)
    for name in names:
        rows = [f"{a:.3f},{int(a > 0)}" for a in rng.normal(size=20)]
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    out = tmp_path / "out"
    given = {"data": tmp_path, "out": out, "report": False}
    first = run("server-graph", {"rounds": 3}, **given)
    header = json.loads((out / "run.json").read_text())
    header["seconds"] = 100.0
    (out / "run.json").write_text(json.dumps(header))
    again = run("server-graph", first.config, **given, resume=True)
    assert again.seconds >= 100.0
    assert [n for n in again.notes if n.startswith("Chosen")] == first.notes[:1] != []


def test_a_run_that_certified_its_end_is_resumed_with_its_own_settings(tmp_path):
    settings = {"rounds": 2, "variables": 6, "blocks": 2}
    first = run("joint-precision", settings, out=tmp_path, report=False)
    assert len(first.metrics) == 3  # the last says how large the gap is
    again = run("joint-precision", settings, out=tmp_path, report=False, resume=True)
    assert again.arrays["precision"].tobytes() == first.arrays["precision"].tobytes()


def test_without_a_study_and_without_a_run_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["run"]) == 1
    assert "name a study, one of cluster-admm" in capsys.readouterr().out
    assert main(["run", "--resume", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().out


# Another run in the folder

SMALL = {"nodes": 6, "clients": 4, "signals": "20", "rounds": 3}


def test_a_folder_with_a_run_is_refused_unless_forced(tmp_path, capsys):
    out = tmp_path / "out"
    run(STUDY, SMALL, out=out)
    before = content(out)
    told = r"out='.*out': holds a run of consensus-graph \(completed, .*--resume.*--force"
    with pytest.raises(ConfigError, match=told):
        run(STUDY, {**SMALL, "clients": 3}, out=out)
    assert main(["run", STUDY, "--out", str(out)]) == 1
    assert "holds a run of consensus-graph" in capsys.readouterr().out
    assert content(out) == before
    (out / "notes.txt").write_text("mine")
    (out / "graphs" / "mine.txt").write_text("mine")
    run(STUDY, {**SMALL, "clients": 3}, out=out, force=True)
    assert (out / "notes.txt").read_text() == (out / "graphs" / "mine.txt").read_text() == "mine"
    fresh = tmp_path / "fresh"
    run(STUDY, {**SMALL, "clients": 3}, out=fresh)
    names = {path.relative_to(out) for path in content(out)}
    mine = {Path("notes.txt"), Path("graphs/mine.txt")}
    assert names == {path.relative_to(fresh) for path in content(fresh)} | mine
    assert len([name for name in names if name.suffix == ".graphml"]) == 4  # the fifth is gone


def test_a_run_that_still_writes_is_not_to_be_forced(tmp_path):
    run(STUDY, SMALL, out=tmp_path)
    before = content(tmp_path)
    lock = FolderLock(tmp_path)
    for force in (False, True):
        with pytest.raises(ConfigError, match="another run writes into this folder") as error:
            run_folder.refuse_to_replace(tmp_path, force=force)
        assert "--force" not in str(error.value)
    lock.release()
    run_folder.refuse_to_replace(tmp_path, force=True)
    assert content(tmp_path) == before


def test_the_server_app_refuses_by_itself(tmp_path):
    """As on Flower's engine and on devices, where no command has looked before."""
    from trellis import apps
    from trellis.sim.grid import run_local

    run(STUDY, SMALL, out=tmp_path)
    before = content(tmp_path)
    nodes = [{"partition-id": i, "num-partitions": 4, "simulation": True} for i in range(4)]
    config = make_run_config(STUDY, SMALL) | {"out": str(tmp_path)}
    assert config["force"] is False
    with pytest.raises(ConfigError, match="holds a run of consensus-graph"):
        run_local(apps.server_app, apps.client_app, nodes, config)
    assert content(tmp_path) == before
    run_local(apps.server_app, apps.client_app, nodes, config | {"force": True})


@pytest.mark.parametrize("name", ["report.html", "run.json", "graphs/mine.png", "nodes/x"])
@pytest.mark.parametrize("force", [False, True])
def test_files_of_nobody_s_run_are_never_written_over(tmp_path, name, force):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    (tmp_path / "notes.txt").write_text("not in the way")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match=f"holds {name.partition('/')[0]}, which no run of Trel"):
        run(STUDY, SMALL, out=tmp_path, force=force)
    assert content(tmp_path) == before


def test_a_folder_with_other_files_can_be_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert run(STUDY, SMALL, out=tmp_path).status == "completed"


def test_a_run_is_not_kept_among_the_clients_files_nor_in_a_file(tmp_path):
    data = tables(tmp_path / "data")
    before = content(tmp_path)
    with pytest.raises(ConfigError, match="holds the clients' files"):
        run(STUDY, {"rounds": 2}, data=data, out=data)
    with pytest.raises(ConfigError, match="no folder can be made there"):
        run(STUDY, SMALL, out=data / "a.csv")
    assert content(tmp_path) == before


def test_a_run_that_never_began_is_replaced(tmp_path):
    data, out = tables(tmp_path / "data"), tmp_path / "out"
    bad(data)
    with pytest.raises(StudyError):
        run(STUDY, {"rounds": 2}, data=data, out=out)
    assert RunResult.load(out).status == "failed"
    shutil.rmtree(data)
    assert run(STUDY, {"rounds": 2}, data=tables(data), out=out).status == "completed"


@pytest.mark.parametrize(
    ("study", "settings"),
    [
        ("cluster-admm", {"clients": 6, "servers": 4, "rounds": 2, "features": 4, "clusters": "1"}),
        ("gromov-wasserstein", {"clients": 2, "graphs": 6, "rounds": 1, "downstream": "anomaly"}),
        ("joint-precision", {"clients": 3, "variables": 6, "blocks": 2, "privacy": "dp"}),
        ("server-graph", {"clients": 6, "servers": 2, "rounds": 2, "topology": "complete"}),
    ],
)
def test_nothing_that_a_study_writes_is_forgotten(tmp_path, study, settings):
    run(study, settings, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {
        *run_folder.FILES, *run_folder.TABLES, *run_folder.STATE,
        run_folder.HEADER, run_folder.GRAPHS, run_folder.WRITTEN, ".lock",
    }  # fmt: skip
    run_folder.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_clearing_never_leads_out_of_the_folder(tmp_path):
    out = tmp_path / "out"
    run(STUDY, SMALL, out=out)
    (tmp_path / "mine.txt").write_text("mine")
    (out / run_folder.WRITTEN).write_text("graphs/../../mine.txt\n../mine.txt\n")
    run_folder.clear(out)
    assert (tmp_path / "mine.txt").is_file()


def test_without_its_list_graphs_are_known_by_their_kind(tmp_path):
    run(STUDY, SMALL, out=tmp_path)
    (tmp_path / run_folder.WRITTEN).unlink()
    (tmp_path / "graphs" / "mine.txt").write_text("mine")
    run_folder.clear(tmp_path)
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == ["mine.txt"]


# What the header says


@pytest.mark.parametrize(
    ("settings", "settled"),
    [
        ({"method": "igl"}, True),
        ({"method": "fedavg"}, True),
        ({"privacy": "dp", "clients": 5}, True),
        ({"privacy": "dp", "method": "igl"}, True),
        ({"rounds": 1}, False),
        ({"rounds": 2, "tolerance": 0.0}, None),
    ],
)
def test_whether_a_run_settled_is_kept_and_told(tmp_path, settings, settled):
    result = run(STUDY, {**SMALL, "rounds": 50, **settings}, out=tmp_path)
    assert result.settled is settled
    assert json.loads((tmp_path / "run.json").read_text())["settled"] is settled
    page = (tmp_path / "report.html").read_text()
    assert ("Not converged" in page) == (settled is False)
    assert any("raise rounds" in note for note in result.notes) == (settled is False)
    if settled:
        assert "Converged: " in page or "No round was needed" in page


def test_a_header_from_before_can_be_loaded(tmp_path):
    run(STUDY, SMALL, out=tmp_path)
    header = json.loads((tmp_path / "run.json").read_text())
    del header["settled"]
    (tmp_path / "run.json").write_text(json.dumps(header))
    assert RunResult.load(tmp_path).settled is None
    assert main(["report", str(tmp_path)]) == 0
