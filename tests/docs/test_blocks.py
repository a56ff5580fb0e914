"""Every command and every Python block of the pages is run, or checked and says why not."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import matplotlib
import pytest

from .blocks import MARK, ROOT, TEXT, Block, blocks, pages
from .commands import CHECKED, Unknown, check, execute, must_not_run, program

PAGES = [page for page in pages() if blocks(page)]
# What may not stand in a block that is taken for a formula or a picture.
CODE = r"trellis |^(import|from|def|class) "
DOCTEST = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name(page) -> str:
    return str(page.relative_to(ROOT))


def run_python(block: Block, names: dict[str, object]) -> None:
    """Run a Python block; of one with prompts, compare what it shows; write one that is a file."""
    if block.file:
        Path(block.file).write_text(block.text)
        return
    if ">>>" not in block.text:
        exec(compile(block.text, str(block), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, str(block), str(block), 0)
    runner = doctest.DocTestRunner(optionflags=DOCTEST)
    shown: list[str] = []
    runner.run(test, out=shown.append, clear_globs=False)
    names |= test.globs
    assert runner.summarize(verbose=False).failed == 0, "".join(shown)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Work in a folder that looks like a fresh clone, of which nothing is written to."""
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "results":
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    matplotlib.use("Agg")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_the_page_shows_runs(page, clone):
    """In one folder, from top to bottom, as a reader would."""
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.mark == "not run" or block.language in TEXT:
            continue
        if block.python:
            if not block.mark:
                run_python(block, names)
            continue
        for command in block.commands():
            if not block.mark and program(command) and not must_not_run(command):
                execute(command)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_checked_or_says_why_not(page):
    for block in blocks(page):
        where = f"{block}: {block.text[:60]!r}"
        assert block.mark != "not run" or len(block.reason) > 10, where
        if block.python:
            text = re.sub(r"^(>>>|\.\.\.) ?", "", block.text, flags=re.MULTILINE)
            if ">>>" not in block.text:
                compile(text, str(block), "exec")
            continue
        commands = block.commands()
        assert commands or block.language in TEXT, where
        if block.mark == "not run" or not any(map(program, commands)):
            # A formula, a folder: no line of it may look like something to type.
            assert block.mark or not re.search(CODE, block.text, re.MULTILINE), where
            continue
        for command in commands:
            check(command)


def test_tests_that_a_page_or_a_table_names_are_there():
    reasons = [block.reason for page in PAGES for block in blocks(page)]
    named = [path for reason in reasons for path in re.findall(r"tests/[\w/.]+", reason)]
    assert len(named) > 5
    assert [path for path in [*named, *CHECKED.values()] if not (ROOT / path).exists()] == []


def test_marks_stand_before_a_block():
    for page in PAGES:
        written = [line for line in page.read_text().splitlines() if MARK.match(line)]
        assert len(written) == len([block for block in blocks(page) if block.mark]), page


@pytest.mark.parametrize(
    "command",
    [
        "trellis run consensus-graph --set rhoo=1",
        "trellis paper consensus-graph fig99",
        "trellis run consensus-graph --colour red",
        "trellis tune consensus-graph --over rhoo=0.1:1",
        "make coffee",
        "pip install '.[coffee]'",
        "flwr run . --run-config 'consensus-graph.rhoo=1'",
        "flwr run apps/consensus_graph --run-config 'consensus-graph.rho=1'",
        "flwr run apps/coffee",
        "flower-supernode --node-config 'requireprivacy=true'",
        "coffee --black",
    ],
)
def test_what_is_wrong_in_a_command_is_found(command):
    with pytest.raises((Unknown, ValueError, SystemExit, OSError)):
        check(command)


def test_what_takes_minutes_or_is_the_readers_own_is_checked_only():
    for command in (
        "trellis paper consensus-graph fig2",
        "trellis deploy up federation",
        "trellis run consensus-graph --data FOLDER",
        "make test",
        "flwr run .",
    ):
        assert must_not_run(command)
    for command in ("trellis deploy init graph", "trellis run consensus-graph", "echo 1"):
        assert not must_not_run(command)


def test_a_command_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("trellis report nowhere", "echo nothing > nowhere/at-all"):
        with pytest.raises(AssertionError, match="ends with 1"):
            execute(command)


def test_blocks_are_found_in_every_form(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    trellis list   # all\n\n1. A step:\n\n       make run\n\n   more\n\n"
        "<!-- not run: needs a cluster of machines -->\n```python\nimport ray\n```\n\n"
        "As a file `loss.py`:\n\n    class Loss:\n\n        size = 1\n\n"
        "- a\n  b\n\n<!-- options checked: slow -->\n\n    trellis run x \\\n        --set a=b\n"
    )
    first, second, third, written, fourth = blocks(page)
    assert first.commands() == ["trellis list   # all"]
    assert second.commands() == ["make run"]
    assert (third.python, third.mark) == (True, "not run")
    assert (written.python, written.file) == (True, "loss.py")
    assert written.text == "class Loss:\n\n    size = 1"
    assert (fourth.mark, fourth.reason) == ("options checked", "slow")
    assert [" ".join(one.split()) for one in fourth.commands()] == ["trellis run x --set a=b"]
