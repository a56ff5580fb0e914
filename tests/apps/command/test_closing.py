"""The closing table: whole words in 80 columns, held-out scores beside learning alone."""

from __future__ import annotations

import io

from rich.console import Console

from trellis.apps import run
from trellis.apps.command.closing import show
from trellis.apps.command.run_all import _show_costs


def printed(*results) -> str:
    console = Console(file=io.StringIO(), width=80)
    show(console, list(results))
    return console.file.getvalue()


def test_a_run_with_held_out_scores_tells_them_beside_alone_and_in_words():
    result = run("server-graph", {"clients": 6, "servers": 2, "topology": "ring", "rounds": 5,
                                  "held-out": 0.2})  # fmt: skip
    text = printed(result)
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines() if line[:1] in "│┃┏┡└")
    words = " ".join(text.split())
    assert "On data it has not seen, mean of clients" in words
    assert f"{result.scores['mean']['this result'][1]:.4g}" in words
    assert "learning alone" in words
    assert "The federation is better than learning alone for" in words
    assert "held-out-loss" not in words  # once is enough


def test_a_run_without_scores_has_its_numbers_alone():
    result = run("consensus-graph", {"nodes": 5, "clients": 3, "rounds": 2})
    text = printed(result)
    assert "clients' MCC (threshold 0.2): " in text
    assert "not seen" not in text


def test_of_many_runs_the_numbers_of_an_index_are_told():
    results = [
        run("joint-precision", {"variables": 6, "blocks": 2, "rounds": 3, "samples": "30"})
    ] * 2
    text = printed(*results)
    assert text.count("edges common to all: ") == 2
    assert "AUC" not in text
    assert "extended BIC" not in text


def test_what_privacy_cost_has_whole_words_in_80_columns():
    console = Console(file=io.StringIO(), width=80)
    numbers = ("-20.1", "-17.9", "0.969", "-4.32", "none: 0.0043 better")
    _show_costs(console, [("gromov-wasserstein", "accuracy by distances, SVM", *numbers)])
    text = console.file.getvalue()
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    for word in ("gromov-wasserstein", "accuracy by", "learning", "epsilon", "better"):
        assert word in text
