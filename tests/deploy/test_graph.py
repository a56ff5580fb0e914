"""Three SuperLinks in a line, two clients each: equal to logical servers, killed, lied to, late."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps import run as run_here
from trellis.strategies.network.spool import Spool

from .graph_site import GraphSite, graph_site
from .site import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

# All samples in every round: on devices batches come from the operating system's entropy.
PLAIN = {"loss": "least-squares", "batch": 0, "secure-aggregation": "off"}
ADMM = {"mixing": "exact", "method": "gfl", "clusters": "1", "tau": 0.0}
LINE = {"servers": 3, "topology": "path"}
LONG = 1500.0  # seconds for a run: its rounds start a process for every client and every link
TIMEOUT = 30  # all of this on one machine: a sign of life may take its time


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    with graph_site(tmp_path_factory.mktemp("line")) as found:
        yield found


def models(results):
    """Return every server's own model."""
    return np.array([result.arrays["models"][s] for s, result in enumerate(results)])


def test_without_noise_it_is_to_the_bit_what_logical_servers_learn(line: GraphSite, tmp_path):
    """... while a node that is no bridge brings what it has made up, and a letter from before."""
    settings = {**PLAIN, "method": "none", "sigma": 0.0, "rounds": 5}
    here = run_here("server-graph", {**settings, **LINE}, data=line.data, out=tmp_path / "here")
    false = tmp_path / "false-spool"
    with line.false_bridge(0, "server-1", false):
        run = line.submit("server-graph", "plain", **settings)
        real, forged = line.spool(run, "server-0"), Spool(false, line.name(run))
        letter = until(lambda: real.take(1, 1, "", 0.0).letter, lambda: "no letter of round 1")
        for number in range(2, 6):
            forged.put(1, number, letter)  # an old one in the place of a new one
        forged.put(1, 6, letter[:-1] + bytes([letter[-1] ^ 1]))
        run.end(patience=LONG)
    results = line.results(run)
    assert [result.status for result in results] == ["completed"] * 3
    np.testing.assert_array_equal(models(results), here.arrays["models"])
    assert results[1].arrays["link_rounds"].tolist() == [[r, r] for r in range(1, 6)]
    assert np.all(results[1].arrays["link_weights"] == here.arrays["combination"][1, 0])
    merged = line.merged(run)
    np.testing.assert_array_equal(merged.arrays["models"], here.arrays["models"])
    np.testing.assert_array_equal(merged.arrays["centroid"], here.arrays["centroid"])
    assert [c["name"] for c in merged.clients] == [c["name"] for c in here.clients]


def test_masked_it_is_what_logical_servers_learn(line: GraphSite):
    # At the ends of a line masks can hide nothing: there is noise, from entropy, on these edges.
    settings = {**PLAIN, "method": "masked", "sigma": 1e-12, "rounds": 4}
    here = run_here("server-graph", {**settings, **LINE}, data=line.data)
    run = line.submit("server-graph", "masked", **settings)
    run.end(patience=LONG)
    results = line.results(run)
    np.testing.assert_allclose(models(results), here.arrays["models"], atol=1e-10, rtol=0.0)
    assert results[1].arrays["link_rounds"].tolist() == [[r, r] for r in range(1, 5)]
    # What crossed to the middle was words under masks, in sealed letters.
    spool = line.graph.own("server-0") / "spool"
    assert not any(b"model" in path.read_bytes() for path in spool.rglob("*.letter"))


@pytest.mark.parametrize("mixing", ["exact", "paper"])
def test_cluster_admm_is_to_the_bit_what_logical_servers_learn(line: GraphSite, mixing):
    settings = {**ADMM, "mixing": mixing, "rho": 2.5, "rounds": 5}
    here = run_here("cluster-admm", {**settings, **LINE}, data=line.data)
    run = line.submit("cluster-admm", f"admm-{mixing}", **settings)
    run.end(patience=LONG)
    np.testing.assert_array_equal(models(line.results(run)), here.arrays["models"])
    np.testing.assert_array_equal(line.merged(run).arrays["clients"], here.arrays["clients"])


def test_when_the_middle_server_is_killed_the_others_go_on_with_the_right_weights(line: GraphSite):
    settings = {**PLAIN, "method": "none", "sigma": 0.0, "rounds": 7}
    run = line.submit("server-graph", "killed", "--server-timeout", TIMEOUT, **settings)
    line.in_round(run, "server-1", 3)
    line.kill_server("server-1")
    try:
        run.end(code=1, patience=LONG)  # as one of the three did not complete
        ends = [result for s, result in enumerate(line.results(run)) if s != 1]
        assert [result.status for result in ends] == ["completed"] * 2
        for server, result in zip((0, 2), ends, strict=True):
            came = result.arrays["link_rounds"][:, 0]
            last = int(np.count_nonzero(came))
            assert 3 <= last < 7
            assert came.tolist() == [*range(1, last + 1), *[0] * (7 - last)]
            assert any(
                "gone: no sign of life" in event["what"] for event in result.network["events"]
            )
            alone = {**settings, **LINE, "failures": f"1:{last + 1}"}
            here = run_here("server-graph", alone, data=line.data)
            np.testing.assert_array_equal(
                result.arrays["models"][server], here.arrays["models"][server]
            )
    finally:
        line.up()


def test_a_killed_server_comes_back_with_its_checkpoint_and_is_taken_in(line: GraphSite):
    settings = {**PLAIN, "method": "none", "sigma": 0.0, "rounds": 12, "step": 0.02}
    run = line.submit("server-graph", "back", "--server-timeout", TIMEOUT, **settings)
    line.in_round(run, "server-1", 2)
    line.kill_server("server-1")
    line.up("--only", "server-1")
    back = line.submit("server-graph", "back", "--only", "server-1")
    back.end(patience=LONG)
    run.end(code=1, patience=LONG)  # which followed the server that was killed
    ends, middle, other = line.results(run)
    assert [r.status for r in (ends, middle, other)] == ["completed"] * 3
    rounds = [int(row["round"]) for row in middle.metrics]
    skipped = np.flatnonzero(np.diff(rounds) > 1)
    assert rounds[-1] == 12
    assert skipped.size == 1  # it went on where the graph was, not where it had stopped
    assert middle.arrays["link_rounds"][-1].tolist() == [12, 12]
    came = ends.arrays["link_rounds"][:, 0]
    assert came[0] == 1
    assert came[-1] == 12
    assert np.any(came == 0)
    what = " | ".join(event["what"] for event in ends.network["events"])
    assert "has started, and is taken in" in what


def test_a_link_that_is_cut_mends(line: GraphSite):
    settings = {**PLAIN, "method": "none", "sigma": 0.0, "rounds": 12, "step": 0.02}
    run = line.submit("server-graph", "cut", "--server-timeout", TIMEOUT, **settings)
    line.in_round(run, "server-1", 2)
    with line.cut("server-0", "server-1"):
        run.wait_for(r"server-0: .*server-1 gone: no sign of life")
        run.wait_for(r"server-1: .*server-0 gone: no sign of life")
    run.end(patience=LONG)
    results = line.results(run)
    assert [result.status for result in results] == ["completed"] * 3
    came = {s: results[s].arrays["link_rounds"] for s in (0, 1)}
    for rounds in (came[0][:, 0], came[1][:, 0]):
        assert rounds[0] == 1
        assert np.any(rounds == 0)
        assert rounds[-1] == 12  # mended
    assert np.all(came[1][-1] == 12)
    # The half that was not cut off was always in step.
    assert np.count_nonzero(came[1][:, 1] == 0) <= 2


def test_out_of_step_it_comes_to_the_same_optimum(line: GraphSite):
    settings = {**ADMM, "rho": 2.5, "rounds": 68}
    there = run_here("cluster-admm", {**settings, **LINE, "rounds": 600}, data=line.data)
    optimum = there.arrays["models"][0]
    run = line.submit("cluster-admm", "late", "--max-staleness", 2, **settings)
    run.end(patience=LONG)
    results = line.results(run)
    found = models(results)
    np.testing.assert_allclose(found, np.broadcast_to(optimum, found.shape), atol=1e-6, rtol=0.0)
    ages = [
        np.array([row["round"] for row in result.metrics])[:, None] - result.arrays["link_rounds"]
        for result in results
    ]
    assert max(int(age.max()) for age in ages) <= 2
    assert any((age > 0).any() for age in ages)  # they were not in step by chance
