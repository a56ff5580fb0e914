"""Settings of the studies: meaning, unit, range and default, from the config classes."""

from __future__ import annotations

from trellis import apps

from ..described import Setting, about, settings
from .markdown import code, prose, sentence, table


def overview() -> str:
    """Return the page that leads to those of the studies."""
    rows = [
        (f"[{study}]({study}.md)", about(study), str(len(settings(study))))
        for study in apps.STUDIES
    ]
    return "\n\n".join(
        [
            "# Settings",
            "Every study has settings of its own and some that all have. Each has a default; give "
            "others with `--set NAME=VALUE` on the command line, as keywords from Python "
            "(`local_steps` is `local-steps`, `lambda_` is `lambda`), or under the study's name in "
            "a [run config](../run-config.md). A value out of its range is refused with a sentence "
            "that names it, and so are settings that do not go together.",
            table(("study", "learns", "settings"), rows),
            "The same in a terminal: `trellis info STUDY`, `trellis info STUDY SETTING`.",
        ]
    )


def page(study: str) -> str:
    """Return the page of one study: a table of all settings, then each with its meaning."""
    known = settings(study)
    parts = [
        f"# Settings of {study}",
        f"{sentence(about(study)[:1].upper() + about(study)[1:])} "
        "*Own data* is what a setting is on data of your own (`--data`) where you leave it open "
        "and that is another value than its default.",
    ]
    for heading, common in (("Its own settings", False), ("Settings of every study", True)):
        chosen = [setting for setting in known if setting.common == common]
        parts += [f"## {heading}", _table(chosen)]
        parts += [_entry(setting) for setting in chosen]
    return "\n\n".join(parts)


def _table(chosen: list[Setting]) -> str:
    rows = [
        (
            f"[`{one.name}`](#{one.name})",
            code(one.default),
            one.range,
            one.unit,
            code(one.own_data),
        )
        for one in chosen
    ]
    return table(("setting", "default", "range", "unit", "own data"), rows)


def _entry(setting: Setting) -> str:
    told = [f"**Default** {code(setting.default)}"]
    told += [f"**Own data** {code(setting.own_data)}"] if setting.own_data else []
    told += [f"**Range** {setting.range}"]
    told += [f"**Unit** {setting.unit}"] if setting.unit else []
    # The id is the setting's own word, whatever a builder of headings would make of it.
    return "\n\n".join(
        [
            f"### `{setting.name}` {{ #{setting.name} }}",
            sentence(prose(setting.meaning)),
            " · ".join(told),
        ]
    )
