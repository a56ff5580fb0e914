"""Peers that cannot share an environment with Trellis: each has one of its own.

`interpreter` makes it when it is first asked for, from the file ``NAME.txt`` beside this one, which
pins what the peer needs and the environment of Trellis does not have in a version it takes. What is
not listed there is found in the environment of Trellis, so that both sides run the same numpy,
scipy and torch. A peer's own script stands here as well, ``NAME_peer.py``: it reads its task as
JSON on standard input, imports nothing of Trellis and prints one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ENVIRONMENTS = _HERE.parents[1] / ".venv-peers"


def interpreter(name: str) -> Path:
    """Return the Python of the peer ``name``, installed where it is not yet."""
    wanted = _HERE / f"{name}.txt"
    place = _ENVIRONMENTS / name
    python, made = place / "bin" / "python", place / "made-from.txt"
    if made.is_file() and made.read_text() == wanted.read_text():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([str(python), *install, "-r", str(wanted)], check=True)
    [own] = (place / "lib").glob("python*/site-packages")
    (own / "trellis-environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made.write_text(wanted.read_text())
    return python


def ask(name: str, task: dict[str, Any]) -> dict[str, Any]:
    """Run the peer's script on a task and return its answer."""
    script = _HERE / f"{name}_peer.py"
    done = subprocess.run(
        [str(interpreter(name)), str(script)],
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
