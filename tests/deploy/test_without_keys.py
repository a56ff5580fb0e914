"""Without authentication a device has a new number after every start: it is known by its name."""

from __future__ import annotations

import pytest

from .site import site, until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]


def test_a_restarted_device_is_enrolled_again_by_its_name(tmp_path, tables):
    with site(tmp_path, tables, "--clients", "2") as two:
        before = two.rehearsal.node_numbers()["hospital"]
        settings = {"rounds": 1000, "tolerance": 0}
        run = two.submit("consensus-graph", "run", **settings)
        run.in_round(2)
        two.kill(two.node("hospital"))
        back = run.wait_for(r"round (\d+): client hospital is back")
        run.wait_for(rf"round {back[1]}: 2 clients answered, 0 failed", back.start())
        after = two.rehearsal.node_numbers()["hospital"]
        assert after != before
        # Once it has said its name it is called by that, also in a round that failed.
        assert before not in run.text.partition("round 1: 2 clients answered")[2]
        two.stop(run)
        run.end(code=1)
        until(lambda: run.result.status == "stopped", lambda: run.result.status)
        assert [client["name"] for client in run.result.clients] == ["clinic", "hospital"]
        assert any("Client hospital was left out of" in note for note in run.result.notes)
        assert two.said("hospital", run) == ["enrolled", "enrolled"]
