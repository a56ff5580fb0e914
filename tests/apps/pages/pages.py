"""Reading a report the way a browser does, for the tests."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from trellis.apps.pages import plots

VOID = {"meta", "br", "hr", "img", "input", "link"}


def leave_out_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write reports without their pictures, which take a second to draw; labels stay."""
    stub = Markup('<svg role="img" aria-label="{}"></svg>')
    monkeypatch.setattr(plots, "svg", lambda _, label="": stub.format(label))
    empty = Figure()
    for name in ("curves", "mark", "level", "heat_map", "heat_maps"):
        monkeypatch.setattr(plots, name, lambda *_, **__: empty)

    def save(_: Figure, path: Path) -> Path:
        path.write_bytes(b"a picture")
        return path

    monkeypatch.setattr(plots, "save", save)


class Page(HTMLParser):
    """A parsed page: its elements, its text, its headings; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.headings: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    @classmethod
    def read(cls, path: Path) -> Page:
        return cls(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            return
        self.text.append(data)
        if self._open and self._open[-1] in ("h1", "h2", "h3"):
            self.headings[-1] += data

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def assert_private(self) -> None:
        """Nothing runs, nothing is loaded, every id is used once, every reference is met."""
        kinds = {tag for tag, _ in self.elements}
        assert not kinds & {"script", "link", "iframe", "object", "embed", "base", "form"}
        identities = []
        for tag, attributes in self.elements:
            for name, value in attributes.items():
                assert not name.startswith("on"), (tag, name)
                if name in ("src", "href", "xlink:href", "data", "action", "srcset"):
                    assert value is not None
                    near = value.startswith(("#", "data:image/png;base64,"))
                    assert near or (":" not in value and not value.startswith("/")), value
                if name == "id":
                    identities.append(value)
        assert len(identities) == len(set(identities))
        local = [
            value[1:]
            for _, attributes in self.elements
            for name, value in attributes.items()
            if name in ("href", "xlink:href") and value is not None and value.startswith("#")
        ]
        assert set(local) <= set(identities)
        policy = [a for a in self.tags("meta") if a.get("http-equiv") == "Content-Security-Policy"]
        assert "default-src 'none'" in str(policy[0]["content"])
        assert self.tags("html")[0]["lang"] == "en"
        for picture in self.tags("svg"):
            assert picture["role"] == "img"
            assert picture["aria-label"]
