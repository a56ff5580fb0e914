"""Words of pages."""

from __future__ import annotations

import pytest

from trellis.apps.pages.wording import counted


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (1, "company", "1 company"),
        (8, "company", "8 companies"),
        (2, "day", "2 days"),
        (160, "new person", "160 new people"),
        (1200, "held-out record", "1,200 held-out records"),
    ],
)
def test_nouns_are_counted_as_people_do(count, noun, words):
    assert counted(count, noun) == words
