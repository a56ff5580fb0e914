"""The pip command that brings a missing extra, for the way in which Trellis was installed here.

Every part of the project may import this module. pip's record of the installation is read only when
a hint is needed: `importlib.metadata` is slow to import.
"""

from __future__ import annotations

import json
import shlex


def pip_install(extra: str) -> str:
    """Return the command that installs Trellis with an extra.

    Parameters
    ----------
    extra : ``laptop`` (simulations, reports, plots, accounting), ``gnn`` (graph neural networks and
        optimal transport) or ``tune`` (Optuna)
    """
    from importlib.metadata import distributions

    # A clone on the path may hold a second record, of a build, without the source that pip noted.
    records = list(distributions(name="trellis"))
    sources = [text for record in records if (text := record.read_text("direct_url.json"))]
    source = json.loads(sources[0]) if sources else {}
    if not records or "dir_info" in source:
        return f"pip install '.[{extra}]' in a clone of the project"
    if not source:  # from a package index
        return f"pip install 'trellis[{extra}]'"
    url = str(source["url"])
    if "vcs_info" in source:
        url = f"{source['vcs_info']['vcs']}+{url}@{source['vcs_info']['commit_id']}"
    return f"pip install {shlex.quote(f'trellis[{extra}] @ {url}')}"
