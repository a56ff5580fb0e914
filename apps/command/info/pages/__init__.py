"""The reference of the documentation as Markdown, made from the code when the site is built.

A page per idea: `settings` of every study, `commands` of the command line, `python` for what
``import trellis`` shows, `files` of a run, `codes` of errors, `keys` of node configs, policies and
run configs. None is kept in git: what is made from the code cannot be behind it.
"""

from __future__ import annotations

from trellis import apps

from . import codes, commands, files, keys, python, settings


def pages() -> dict[str, str]:
    """Return every page of the reference by its place below ``reference/``, in reading order."""
    return {
        "settings/index.md": settings.overview(),
        **{f"settings/{study}.md": settings.page(study) for study in apps.STUDIES},
        "command-line.md": commands.page(),
        "python.md": python.page(),
        "files.md": files.page(),
        "error-codes.md": codes.page(),
        "node-config.md": keys.node_page(),
        "run-config.md": keys.run_page(),
    }
