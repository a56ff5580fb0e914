"""A word that is nearly right gets the right one named."""

from __future__ import annotations

import pytest

from trellis.apps.command import main


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("rn", "server-graph"), "did you mean run?"),
        (("run", "serve-graph"), "did you mean server-graph?"),
        (("paper", "joint-precison"), "did you mean joint-precision?"),
        (("deploy", "statsu", "x"), "did you mean status?"),
        (("run", "server-graph", "--ste", "rounds=3"), "did you mean --set?"),
        (("run", "server-graph", "--engine", "flowr"), "did you mean flower?"),
    ],
)
def test_what_was_meant_is_said(words, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert meant in capsys.readouterr().err


def test_nothing_is_guessed_of_a_word_like_no_other(capsys):
    with pytest.raises(SystemExit):
        main(("run", "zzz"))
    told = capsys.readouterr().err
    assert "choose from" in told
    assert "did you mean" not in told
