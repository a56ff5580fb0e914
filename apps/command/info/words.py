"""What is known about a study, laid out for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from trellis.apps.experiments.figures import figures

from .described import Setting, about, folder, settings


def study(name: str, wide: int) -> Iterator[str]:
    """Yield the lines about a study, with rich's markup."""
    yield f"[bold]{name}[/]"
    yield from _wrapped(about(name), wide, 2)
    known = settings(name)
    for heading, common in (("Its own settings", False), ("Settings of every study", True)):
        yield from ("", f"[bold]{heading}[/]")
        for setting in known:
            if setting.common == common:
                yield from _entry(setting, wide)
    yield from _figures(name, wide)
    yield ""
    yield from _wrapped(f"Try it:   trellis run {name} --out results/{name}", wide)
    yield from _wrapped(f"One only: trellis info {name} {known[1].name}", wide)
    if (page := page_of(name)) is not None:
        yield from _wrapped(f"Read on:  {page}", wide)


def one(name: str, setting: Setting, wide: int) -> Iterator[str]:
    """Yield the lines about one setting, with rich's markup."""
    yield f"[bold]{setting.name}[/]  of {'every study' if setting.common else name}"
    yield from _wrapped(_plain(setting.meaning), wide, 2)
    yield ""
    rows = [("default", setting.default), ("may be", setting.range), ("unit", setting.unit)]
    if setting.own_data:
        rows.insert(1, ("own data", f"{setting.own_data}, where it is left open"))
    for key, value in rows:
        if value:
            yield from _wrapped(f"{key:<10}{value}", wide, 2, 10)
    yield ""
    value = setting.default if setting.default != '""' else "..."
    yield from _wrapped(f"trellis run {name} --set {setting.name}={value}", wide, 2)


def page_of(name: str) -> str | None:
    """Return the path of a study's page, as it is seen from here; None if it has none."""
    path, here = folder(name) / "README.md", Path.cwd()
    if not path.is_file():
        return None
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _entry(setting: Setting, wide: int) -> Iterator[str]:
    told = [setting.range]
    told += [f"unit: {setting.unit}"] if setting.unit not in ("", "no unit") else []
    told += [f"own data: {setting.own_data}"] if setting.own_data else []
    name, default = setting.name, _escaped(setting.default)
    head = f"{name} = {setting.default}"
    # The range stands beside the name where that leaves a line, and else below it.
    rest = "; ".join(told)
    if 2 + max(len(head), 28) + 2 + len(rest) <= wide:
        yield f"  [bold]{name}[/] = {default}{' ' * (30 - len(head))}[dim]{_escaped(rest)}[/]"
    else:
        yield f"  [bold]{name}[/] = {default}"
        yield from (f"[dim]{line}[/]" for line in _wrapped(rest, wide, 6))
    yield from _wrapped(_plain(setting.meaning), wide, 6)


def _figures(name: str, wide: int) -> Iterator[str]:
    found = figures(name)
    if not found:
        return
    yield from ("", "[bold]Figures of its paper[/]")
    for asked, heading in ((False, ""), (True, "only when asked for: ")):
        names = [key for key, figure in found.items() if figure.on_request == asked]
        if names:
            yield from _wrapped(heading + ", ".join(names), wide, 2)
    yield from _wrapped(f"trellis paper {name} {next(iter(found))} makes one", wide, 2)


def _plain(text: str) -> str:
    return text.replace("``", "")


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


def _wrapped(text: str, wide: int, indent: int = 0, hang: int = 0) -> Iterable[str]:
    lines = textwrap.wrap(
        text,
        wide,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [_escaped(line) for line in lines]
