"""The Python API: what ``import trellis`` shows, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from trellis.apps.python import PUBLIC, public

from .markdown import prose, sentence, table

# What public functions return that has no public name of its own.
RETURNED = {
    "compare": "trellis.apps.runs.compare:Comparison",
    "tune": "trellis.apps.tuning.outcome:Tuning",
    "gw_neighbours": "trellis.strategies.gromov_wasserstein.pruning.neighbours:Neighbours",
    "gw_medoids": "trellis.strategies.gromov_wasserstein.pruning.medoids:Medoids",
}
_HEADING = re.compile(r"\n*^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_LISTS = ("Parameters", "Attributes", "Raises", "Returns", "Yields")


def page() -> str:
    """Return the page of the Python API."""
    import trellis

    members = {name: _objects(name) for name in PUBLIC}
    rows = [
        (f"[`trellis.{name}`](#{name})", prose(_summary(found[0][1])))
        for name, found in members.items()
    ]
    parts = [
        "# Python API",
        "`import trellis` shows these names; nothing heavy is imported before it is used. "
        "[Trellis from Python](page:python) has examples of all of them, step by step.",
        table(("name", "what it is"), rows),
        f"`trellis.STUDIES` names the studies: {', '.join(f'`{s}`' for s in trellis.STUDIES)}. "
        "`trellis.__version__` is the version.",
    ]
    for found in members.values():
        for name, thing in found:
            parts += _section(name, thing)
    return "\n\n".join(parts)


def _objects(name: str) -> list[tuple[str, Any]]:
    found = [(f"trellis.{name}", public(name))]
    if name in RETURNED:
        module, _, returned = RETURNED[name].partition(":")
        found.append((returned, getattr(import_module(module), returned)))
    return found


def _summary(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _section(name: str, thing: Any) -> Iterator[str]:
    short = name.rpartition(".")[2]
    yield f"## `{name}` {{ #{short} }}"
    if not inspect.isclass(thing):
        yield _signature(name, thing)
        yield from _explained(thing)
        return
    if "__init__" in vars(thing):
        yield _signature(name, thing)
    yield from _explained(thing)
    for member, value in vars(thing).items():
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        documented = not member.startswith("_") and getattr(inner, "__doc__", None)
        if isinstance(inner, property | cached_property) and documented:
            yield f"### `{short}.{member}` {{ #{short}.{member} }}"
            yield from _explained(inner)
        elif inspect.isfunction(inner) and documented:
            yield f"### `{short}.{member}()` {{ #{short}.{member} }}"
            yield _signature(f"{short[:1].lower()}{short[1:]}.{member}", inner)
            yield from _explained(inner)


def _signature(name: str, thing: Any) -> str:
    """Return how it is called, a parameter per line where that is long."""
    found = inspect.signature(thing)
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    shown = [_parameter(parameter) for parameter in parameters]
    named = [p.kind is p.KEYWORD_ONLY for p in parameters]
    if any(named) and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        shown.insert(named.index(True), "*")
    empty = found.return_annotation in (found.empty, None, "None")
    returned = "" if empty else f" -> {_kind(found.return_annotation)}"
    text = f"{name}({', '.join(shown)}){returned}"
    if len(text) > 88:
        text = "\n".join([f"{name}(", *(f"    {part}," for part in shown), f"){returned}"])
    return f"```python\n{text}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        text = f"*{text}" if parameter.kind is parameter.VAR_POSITIONAL else f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {_kind(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def _kind(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"NDArray\[np\.\w+\]|Matrix", "ndarray", text)


def _explained(thing: Any) -> Iterator[str]:
    """Yield a docstring's text and sections."""
    text = inspect.cleandoc(thing.__doc__ or "")
    first, *rest = _HEADING.split("\n" + text)
    yield from (_paragraph(part) for part in first.strip("\n").split("\n\n") if part.strip())
    for heading, body in zip(rest[::2], rest[1::2], strict=True):
        yield f"**{heading}**"
        body = body.strip("\n")
        if heading == "Examples":
            yield f"```pycon\n{body}\n```"
        elif heading in _LISTS:
            yield _listed(body)
        else:
            yield from (_paragraph(part) for part in body.split("\n\n") if part.strip())


def _paragraph(text: str) -> str:
    """Return one paragraph; what is indented stays as it is, it is a formula or code."""
    if text.startswith("    "):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    return prose(text)


def _listed(body: str) -> str:
    """Return a section of names with their kinds and explanations as a list."""
    lines = []
    for entry in re.split(r"\n(?=\S)", body):
        head, _, rest = entry.partition("\n")
        name, colon, kind = head.partition(" : ")
        told = " ".join(rest.split())
        if colon and told:
            lines.append(f"- `{name}` ({prose(kind)}): {sentence(prose(told))}")
        elif colon:  # the explanation stands where the kind would
            lines.append(f"- `{name}`: {sentence(prose(kind))}")
        else:
            lines.append(f"- `{head}`" + (f": {sentence(prose(told))}" if told else ""))
    return "\n".join(lines)
