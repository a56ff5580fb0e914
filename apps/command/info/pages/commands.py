"""The command line: every subcommand with its words and options, from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from trellis.apps.command import command_parser

from .markdown import code, prose, sentence, table


def page() -> str:
    """Return the page of the command line."""
    parser = command_parser()
    commands = list(_commands(parser))
    rows = [
        (f"[`{' '.join(words)}`](#{'-'.join(words)})", prose(text)) for words, text, _ in commands
    ]
    parts = [
        "# Command line",
        "`trellis` is installed into `.venv/bin`; `source .venv/bin/activate` puts it on the path. "
        "Every command has `--help`. `trellis --verbose COMMAND` logs everything and shows traces. "
        "Exit codes are on the page of [error codes](error-codes.md#exit-codes).",
        table(("command", "does"), rows),
    ]
    for words, text, command in commands:
        parts += _section(words, text, command)
    return "\n\n".join(parts)


def _commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ("trellis",)
) -> Iterator[tuple[tuple[str, ...], str, argparse.ArgumentParser]]:
    """Yield every command that does something: its words, what it does, and its parser."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        told = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, command in action.choices.items():
            inner = list(_commands(command, (*words, name)))
            yield from inner or [((*words, name), told.get(name, ""), command)]


def _section(words: tuple[str, ...], text: str, command: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {' '.join(words)} {{ #{'-'.join(words)} }}"
    told = command.description or text
    if told:
        yield sentence(prose(told))
    yield f"```text\n{_usage(command)}\n```"
    rows = [_row(action) for action in command._actions if action.dest != "help"]
    heading = ("word", "meaning", "default")
    columns = 3 if any(row[2] for row in rows) else 2
    if rows:
        yield table(heading[:columns], [row[:columns] for row in rows])


def _usage(command: argparse.ArgumentParser) -> str:
    """Return how a command is written, the same on every terminal."""

    class Wide(argparse.HelpFormatter):
        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=88)

    command.formatter_class = Wide
    first, *more = command.format_usage().rstrip().splitlines()
    prefix = "usage: "
    return "\n".join([first.removeprefix(prefix), *(line[len(prefix) :] for line in more)])


def _row(action: argparse.Action) -> tuple[str, str, str]:
    if action.option_strings:
        value = "" if action.nargs == 0 else f" {_value(action)}"
        name = ", ".join(f"`{option}{value}`" for option in action.option_strings)
    else:
        name = code(_value(action))
    choices = f"one of {', '.join(map(code, action.choices))}" if action.choices else ""
    meaning = "; ".join(filter(None, (prose(action.help or ""), choices)))
    usual = action.default not in (None, False, True, [], argparse.SUPPRESS, "")
    return name, meaning, code(str(action.default)) if usual else ""


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper().replace("_", "-")
