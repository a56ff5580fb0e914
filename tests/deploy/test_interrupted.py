"""A run whose server dies in every way ends with the bits of one that was never disturbed."""

from __future__ import annotations

import pytest

from tests.flower.bits import assert_same_bits
from trellis.apps import run as run_here

from .site import Site, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]
STUDY = "consensus-graph"
SETTINGS = {"rounds": 9, "tolerance": 0.0}


def test_killed_and_stopped_and_resumed_it_ends_with_the_same_bits(four: Site, tables, tmp_path):
    here = run_here(STUDY, SETTINGS, data=tables, out=tmp_path / "here")
    run = four.submit(STUDY, "interrupted", **SETTINGS)
    run.in_round(3)
    four.kill(four.server_app())
    words = run.end(code=1)
    assert "ended as finished:failed" in words
    assert "--resume" in words
    assert run.result.status == "running"  # nobody was left to say otherwise

    run = four.submit(STUDY, "interrupted", resume=True)
    run.in_round(5)
    server = four.rehearsal.processes()["server"]
    four.kill(server)
    words = run.end(code=1)
    assert "could not be followed to its end" in words
    assert "--resume" in words
    four.up()
    assert four.rehearsal.processes()["server"] != server

    run = four.submit(STUDY, "interrupted", resume=True)
    run.in_round(7)
    four.stop(run)
    assert "ended as finished:stopped" in run.end(code=1)
    until(lambda: run.result.status == "stopped", lambda: run.result.status)
    assert "it can be resumed from its last checkpoint" in " ".join(run.result.notes)

    run = four.submit(STUDY, "interrupted", resume=True)
    assert "resumed after round" in run.end()
    assert run.result.engine == "deployment"
    assert_same_bits(here, run.result)
    assert run.result.notes == here.notes
