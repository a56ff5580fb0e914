"""Of many clients a few are shown: by a rule that the page names, with numbers of all."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.apps.common.results import RunResult
from trellis.apps.pages.clients.chosen import MOST_ROWS, drawn, first_of, listed, shown, table_of
from trellis.apps.pages.clients.once import once, sharing
from trellis.apps.pages.clients.spread import histograms, in_words, spread_block


def test_all_are_drawn_where_they_are_few_in_their_own_order():
    assert drawn([3.0, 9.0, 1.0]).tolist() == [0, 1, 2]
    assert shown([3.0, 9.0, 1.0]).tolist() == [0, 1, 2]


def test_of_many_those_at_even_steps_from_one_end_to_the_other_are_drawn():
    values = np.random.default_rng(0).permutation(100)
    assert values[drawn(values)].tolist() == [99, 66, 33, 0]


def test_a_table_has_both_ends_even_steps_between_and_whoever_is_drawn():
    values = np.random.default_rng(0).permutation(1000).astype(float)
    also = drawn(values)
    rows = shown(values, also)
    ranks = 999 - values[rows]
    assert np.all(np.diff(ranks) > 0)
    assert set(range(10)) <= set(ranks)
    assert set(range(990, 1000)) <= set(ranks)
    assert set(also) <= set(rows)
    assert MOST_ROWS <= len(rows) <= MOST_ROWS + len(also)
    assert np.max(np.diff(ranks)) < 50


def test_equal_values_stay_in_their_order_and_what_is_no_number_comes_last():
    assert first_of([1.0, np.nan, 2.0, 2.0], most=3).tolist() == [2, 3, 0]


def test_the_caption_says_who_is_shown_and_where_the_rest_is():
    columns = {"client": [f"c{k}" for k in range(80)], "n": list(range(80))}
    table = table_of(columns, shown(columns["n"]), "Clients.", ("best", "worst"), "all.csv")
    assert len(table.rows) == 50
    assert table.rows[0] == ["c79", 79]
    assert table.caption == (
        "Clients. 50 of 80 clients, in order: the ten best, the ten worst, and places spread "
        "evenly between. All are in all.csv."
    )
    few = {name: values[:3] for name, values in columns.items()}
    assert table_of(few, shown([1, 2, 3]), "Clients.", ("a", "b"), "x").caption == "Clients."


def test_long_lists_of_names_end():
    assert listed(["a", "b"]) == "a, b"
    assert listed([f"c{k}" for k in range(1000)], 2) == "c0, c1 and 998 more"


def test_the_spread_is_counted_over_all_clients_and_told_in_words():
    columns = {"edges": np.arange(200) % 7, "gamma": np.linspace(0.0, 1.0, 200)}
    figure = histograms(columns)
    assert len(figure.axes) == 2
    for axes in figure.axes:
        (bars,) = axes.patches
        assert bars.get_data().values.sum() == 200
    assert in_words([3, 1, None, 2, np.nan]) == "1 to 3, median 2"
    assert in_words([5, 5]) == "5"
    assert in_words([None]) == "not known"
    block = spread_block({**columns, "same": [4] * 200})
    assert block is not None
    assert "edges 0 to 6, median 3; gamma 0 to 1, median 0.5." in block.svg
    assert "same" not in block.svg
    assert spread_block({"same": [4] * 200, "one": [np.nan, 2.0]}) is None


def test_what_files_and_page_share_is_made_once_and_only_while_they_are_written():
    made = []

    @once
    def make(result: RunResult) -> int:
        made.append(result)
        return len(made)

    a, b = (RunResult("consensus-graph", seed, "local", {}) for seed in (1, 2))
    assert [make(a), make(a)] == [1, 2]  # whoever has it in hand may have changed it
    with sharing():
        assert [make(a), make(a), make(b), make(a), make(b)] == [3, 3, 4, 3, 4]
    assert make(a) == 5
    with pytest.raises(KeyError), sharing():
        raise KeyError
    assert make(a) == 6
