"""Rows of results: ratios and their spread, how they are kept, the page and the chart of them."""

from __future__ import annotations

import importlib
import inspect
import json
import math

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import catalogue, growth, page, secure_aggregation
from benchmarks.timing import entry, in_turns


def row(name="a-row", **more):
    facts = {
        "peer_version": "Peer 1.0 (fast)",
        "unit": "s",
        "setting": "small",
        "ours_cores": 1,
        "peer_cores": 2,
    }
    ours, peer = more.pop("ours", [1.0, 2.0, 4.0]), more.pop("peer", [10.0, 10.0, 10.0])
    return entry(name, ours, peer, **{**facts, **more})


def test_a_ratio_is_the_median_of_runs_and_not_the_best():
    found = row()
    assert found["ratio"] == 5.0
    assert found["ratio_spread"] == [2.5, 10.0]
    assert found["runs"] == 3
    assert row(more_is_better=True)["ratio"] == pytest.approx(0.2)


def test_runs_take_turns():
    order = []
    measured = in_turns(2, lambda: order.append("ours") or 1.0, lambda: order.append("peer") or 2.0)
    assert order == ["ours", "peer", "ours", "peer"]
    assert measured == ([1.0, 1.0], [2.0, 2.0])


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep results in a folder of the test's own, with benchmarks that are two small functions."""
    monkeypatch.setattr(catalogue, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(command, "write_page", lambda rows: page.write_page(rows, tmp_path))
    listed = {
        "fine": catalogue.Listed(f"{__name__}:fine", "What is fine"),
        "broken": catalogue.Listed(f"{__name__}:broken", "What breaks"),
        "skipped": catalogue.Listed(f"{__name__}:skipped", "What needs data"),
    }
    for module in (catalogue, command, page):
        monkeypatch.setattr(module, "BENCHMARKS", listed)
    return tmp_path


def fine(full=False):
    peer = math.nan if full else 10.0
    return [row(ours=[1.0], peer=[peer], series="clients", x=10)]


def broken(full=False):
    raise RuntimeError("values differ")


def skipped(full=False):
    return []


def test_one_that_fails_does_not_stop_the_others(kept):
    out = Console(file=(kept / "out.txt").open("w"), width=100)
    assert command.measure(["broken", "fine", "skipped"], False, out) == ["broken"]
    assert [(r["benchmark"], r["set"]) for r in catalogue.known()] == [("fine", "quick")]
    assert "What is fine" in (kept / "benchmarks.md").read_text()


def test_a_peer_that_cannot_do_it_is_kept_as_null_and_read_as_nan(kept):
    command.measure(["fine"], True, Console(quiet=True))
    text = (kept / "results.json").read_text()
    strict = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert strict[0]["peer"] is None
    [found] = catalogue.known()
    assert math.isnan(found["peer"] + found["ratio"])
    assert found["set"] == "full"
    assert "| - | s | - |" in (kept / "benchmarks.md").read_text()


def test_the_chart_has_ours_once_beside_every_peer():
    rows = [
        row(ours=[x], peer=[2.0 * x], series="clients", x=x, peer_version=f"{peer} 1.0, one core")
        for peer in ("Flower", "pfl")
        for x in (10, 100)
    ]
    rows.append(row(ours=[5.0], peer=[math.nan], series="clients", x=1000))
    rows.append(row())  # not of the chart
    [(panel, lines)] = growth.gather(rows).items()
    assert panel == ("clients", "s")
    assert lines == {
        "Trellis": [(10.0, 10.0), (100.0, 100.0), (1000.0, 5.0)],
        "Flower 1.0": [(10.0, 20.0), (100.0, 200.0)],
        "pfl 1.0": [(10.0, 20.0), (100.0, 200.0)],
    }


def test_the_page_is_what_the_results_say():
    rows = catalogue.known()
    drawn = bool(growth.gather(rows))
    assert (page.DOCS / "benchmarks.md").read_text() == page.page(rows, drawn)
    assert (page.DOCS / "pictures" / "growth.svg").is_file() == drawn


@pytest.mark.parametrize("name", list(catalogue.BENCHMARKS))
def test_every_benchmark_is_a_function_that_takes_full(name):
    module, _, function = catalogue.BENCHMARKS[name].where.partition(":")
    work = getattr(importlib.import_module(module), function or "run")
    assert inspect.signature(work).parameters["full"].default is False


def test_the_benchmark_of_secure_aggregation_makes_the_plain_sum():
    found = secure_aggregation._measure(5, 100)
    assert found["bytes_up_a_client"] > found["plain_bytes_a_client"] == 800
