"""Devices that cannot, do not want to, are not there, die, come late or come back."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run as run_here

from .site import Site, until, write_table

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]
STUDY = "consensus-graph"
LONG = {"rounds": 1000, "tolerance": 0}


def test_files_that_cannot_be_used_are_named_by_device_and_left_out(four: Site):
    with four.kept_data():
        hospital, lab, ward = map(four.data, ("hospital", "lab", "ward"))
        hospital.unlink()
        lab.write_text(lab.read_text() + "1,2,unspeakable,4,5,6\n")
        write_table(ward, 3, [f"region-{i}" for i in (1, 0, 2, 3, 4, 5)])
        run = four.submit(STUDY, "files", rounds=1, clients_least=1)
        words = run.end()
    for name in ("hospital", "lab"):
        assert f"not enrolled: {name}: the data cannot be read or used (device error E2)" in words
    assert "client ward has other variables than clinic: the same names in another order" in words
    assert "the run goes on with 1 of 4 clients" in words
    assert [client["name"] for client in run.result.clients] == ["clinic"]
    for name in ("hospital: ", "lab: ", "client ward has other variables"):
        assert any(f"A client was left out: {name}" in note for note in run.result.notes)
    # The owners find out more than the operator, who is told no cell and no path.
    (missing,) = four.lines("hospital", run)
    assert (missing["what"], missing["code"]) == ("error", "E2")
    assert "hospital.csv" in missing["error"]
    (text,) = four.lines("lab", run)
    assert "unspeakable" in text["error"]
    assert "unspeakable" not in words + (run.out / "run.json").read_text()
    assert four.said("ward", run) == ["enrolled"]
    assert "result" in four.said("clinic", run)


def test_without_clients_least_a_wrong_file_ends_the_run_at_once(four: Site):
    with four.kept_data():
        write_table(four.data("ward"), 3, ["pulse", *(f"region-{i}" for i in range(1, 6))])
        # That it does not wait shows in that it ends: the time to wait is beyond the test's.
        words = four.submit(STUDY, "wrong", rounds=1, enrol_timeout=3000).end(code=1)
    assert "finished:failed" in words
    assert "3 of 4 clients could be enrolled" in words
    assert "client ward has other variables than clinic: it lacks 'region-0'" in words
    assert "set clients-least" in words


def test_what_owners_do_not_allow_is_refused_and_the_others_go_on(four: Site):
    private = 'privacy = ["dp"]\n'
    other = 'privacy = ["none", "dp"]\nclear-updates = true\nstudies = ["joint-precision"]\n'
    with four.policy("hospital", private), four.policy("ward", other):
        run = four.submit(STUDY, "refused", rounds=1)
        words = run.end()
    for name in ("hospital", "ward"):
        told = f"{name}: refused by the owner's policy (E4)"
        assert f"not enrolled: {told}" in words
        assert any(f"A client refused to take part: {told}" in note for note in run.result.notes)
        (line,) = four.lines(name, run)
        assert line["what"] == "refused"
        assert line["reason"] not in words
    assert "privacy" in four.lines("hospital", run)[0]["reason"]
    assert "consensus-graph" in four.lines("ward", run)[0]["reason"]
    assert [client["name"] for client in run.result.clients] == ["clinic", "lab"]


def test_devices_that_are_away_come_late_die_and_come_back(four: Site, tables, tmp_path):
    four.turn_off("ward")
    strict = four.submit(STUDY, "strict", rounds=1, enrol_timeout=2)
    run = four.submit(STUDY, "presence", clients_least=3, enrol_timeout=12, **LONG)
    words = strict.end(code=1)
    assert "3 of 4 clients could be enrolled" in words
    assert "waiting for ward, not online yet; 3 of 4 devices are online" in words
    run.wait_for("waiting for ward, not online yet; 3 of 4 devices are online")
    run.wait_for("the run goes on with 3 of 4 clients")

    # A second run into the same folder is refused, and the first is not disturbed.
    run.in_round(2)
    second = four.submit(STUDY, "presence", rounds=1, clients_least=3)
    words = second.end(code=1)
    assert "another run writes into this folder" in words
    assert "--resume" not in words
    assert run.result.status == "running"

    four.up()
    joined = run.wait_for(r"round (\d+): client ward joins")
    run.wait_for(rf"round {joined[1]}: 4 clients answered")

    four.kill(four.node("hospital"))
    gone = run.wait_for(r"round \d+: client hospital (left out: |is gone)")
    run.wait_for(r"round \d+: 3 clients answered, 1 failed", gone.start())
    back = run.wait_for(r"round (\d+): client hospital is back", gone.start())
    run.wait_for(rf"round {back[1]}: 4 clients answered, 0 failed", back.start())
    assert "is started again in" in four.rehearsal.log("hospital")
    assert four.said("hospital", run) == ["enrolled", "enrolled"]

    four.stop(run)
    words = run.end(code=1)
    assert "ended as finished:stopped" in words
    assert f"go on with: trellis deploy run {four.work / 'operator'} {STUDY} --resume" in words
    until(lambda: run.result.status == "stopped", lambda: run.result.status)
    notes = " ".join(run.result.notes)
    assert "stopped before its end, by flwr stop" in notes
    assert f"Client ward came late, before round {joined[1]}." in notes
    assert "Client hospital was left out of" in notes

    # Nothing wrong was learned: it goes on to where a run without any fault goes.
    again = four.submit(STUDY, "presence", resume=True, tolerance=1e-5, enrol_timeout=120)
    again.end()
    settings = {"rounds": 1000, "tolerance": 1e-9}
    here = run_here(STUDY, settings, data=tables, out=tmp_path / "here")
    for name in ("weights", "consensus"):
        found, wanted = again.result.arrays[name], here.arrays[name]
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
    for name in ("clinic", "hospital", "lab", "ward"):
        assert four.said(name, again)[-1] == "result"
