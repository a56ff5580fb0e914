"""docs/extend.md: its code runs, and shows the strategy that ``trellis new`` makes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from trellis.apps.command.new.making import TEMPLATE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
STRATEGY = TEMPLATE / "strategies" / "my_study" / "strategy.py.template"


def without_docstrings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            del node.body[0]
    return ast.dump(tree)


def test_the_strategy_is_the_one_that_is_made():
    assert without_docstrings(BLOCKS[0]) == without_docstrings(STRATEGY.read_text())


def test_the_blocks_run_and_print_what_the_page_says():
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(BLOCKS)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"It prints `(.+?)`", PAGE)
    assert printed == [done.stdout.strip().splitlines()[-1]]


def test_every_file_of_the_table_is_made():
    rows = re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    assert len(named) > 12
    for name in named:
        place = TEMPLATE / name
        assert place.is_dir() or place.with_name(f"{place.name}.template").is_file(), name
