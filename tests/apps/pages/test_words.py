"""What studies call their numbers: no two numbers of a study have one name."""

from __future__ import annotations

import pytest

from trellis.apps import STUDIES
from trellis.apps.common.recording import wording
from trellis.apps.pages.wording import LABELS


@pytest.mark.parametrize("study", STUDIES)
def test_no_label_stands_for_two_numbers(study):
    words = wording(study)
    labels = [words.label(name) for name in {**LABELS, **words.labels}]
    twice = {label for label in labels if labels.count(label) > 1}
    assert not twice
