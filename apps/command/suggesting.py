"""A parser of arguments that says which word was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)$")
_OPTION = re.compile(r"unrecognized arguments: .*?(?P<word>--[\w-]+)")


class SuggestingParser(argparse.ArgumentParser):
    """argparse's, whose errors end with the nearest command, study or option."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what was probably meant, and leave with 2."""
        super().error(message + self._meant(message))

    def _meant(self, message: str) -> str:
        if found := _CHOICE.search(message):
            known: Iterable[str] = re.findall(r"'([^']*)'", found["known"])
        elif found := _OPTION.search(message):
            known = self._options()
        else:
            return ""
        near = difflib.get_close_matches(found["word"], list(known), n=1)
        return f"; did you mean {near[0]}?" if near else ""

    def _options(self) -> set[str]:
        """Return the options of this parser and of all its commands."""
        found: set[str] = set()
        for action in self._actions:
            found.update(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                for part in action.choices.values():
                    found |= part._options()
        return found
