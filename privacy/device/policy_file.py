"""The owner's policy as a file: its keys, how each is checked, and an example.

A flat TOML; every key may be absent. The same keys may stand in the node config one by one, where
Flower allows their type. A key that is unknown, of the wrong type, or in both places is an error
that names it, in the file and in the whole node config: a typing error must never become "no
limit". So `NODE_KEYS` lists all that a node config may hold, whoever reads it.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

MODES = ("none", "paper", "dp")
OLD_DP = "sound"  # what dp was called; accepted in policies for one release
COUNT_ON = ("nobody", "signed", "anyone")


class PolicyError(ValueError):
    """A policy that cannot be read; the text names file, key and what to do."""


def _number(least: float, most: float = math.inf) -> Callable[[Any], str]:
    def wrong(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return "must be a number"
        if not least < value <= most:
            limits = f"must be > {least:g}"
            return limits if math.isinf(most) else f"{limits} and at most {most:g}"
        return ""

    return wrong


def _delta(value: Any) -> str:
    if problem := _number(-math.inf)(value):
        return problem
    return "" if 0.0 < value < 1.0 else "must be between 0 and 1, both excluded"


def _share(value: Any) -> str:
    if problem := _number(-math.inf)(value):
        return problem
    return "" if 0.0 <= value <= 1.0 else "must be between 0 and 1"


def _whole(least: int) -> Callable[[Any], str]:
    def wrong(value: Any) -> str:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        return "" if good else f"must be a whole number >= {least}"

    return wrong


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "must be a text"


def _words(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(word, str) and word for word in value)
    return "" if good else 'must be a list of texts, as ["one", "two"]'


def _modes(value: Any) -> str:
    if problem := _words(value):
        return problem
    strangers = [word for word in value if word not in (*MODES, OLD_DP)]
    if strangers or not value:
        return f"must list some of {', '.join(MODES)}"
    return ""


def _whose(value: Any) -> str:
    return "" if value in COUNT_ON else f"must be one of {', '.join(COUNT_ON)}"


# What each key is, and why a value is wrong for it.
KEYS: dict[str, Callable[[Any], str]] = {
    "max-epsilon": _number(0.0),
    "run-epsilon": _number(0.0),
    "delta": _delta,
    "require-privacy": _flag,
    "studies": _words,
    "methods": _words,
    "privacy": _modes,
    "clear-updates": _flag,
    "share-labels": _flag,
    "names": _words,
    "fewest-clients": _whole(3),
    "fewest-share": _number(0.5, 1.0),
    "count-noise-of": _whose,
    "colluding": _share,
    "signing-key": _text,
    "trusted-keys": _text,
    "most-steps": _whole(1),
    "most-megabytes": _number(0.0),
    "most-seconds": _number(0.0, 604_800.0),
}
# A node config with one of these is a device's, whatever else it says.
OWNER_KEYS = frozenset({"policy", "policy-file", *KEYS})


def _count(value: Any) -> str:
    text = "" if isinstance(value, bool) else str(value).strip()
    return "" if text.removeprefix("-").isdecimal() else "must be a whole number"


# All that a node config may hold: the owner's keys, and what tells a node who and where it is.
NODE_KEYS: dict[str, Callable[[Any], str]] = {
    **KEYS,
    "policy": _text,
    "policy-file": _text,
    "data-path": _text,
    "state-path": _text,
    "name": _text,
    "server-name": _text,
    "partition-id": _count,
    "num-partitions": _count,
    "server": _count,
    "cluster": _count,
    "bridge": _count,
    "spool": _text,
    "simulation": _flag,
}


def check(key: str, value: Any) -> None:
    """Refuse a value that a key cannot have."""
    if problem := NODE_KEYS[key](value):
        quotes = "; it is a text here: write it without quotes" if _is_quoted(value) else ""
        raise PolicyError(f"{key}={value!r}: {problem}{quotes}")


def _is_quoted(value: Any) -> bool:
    """Return whether a text is a number, true or false that somebody put into quotes."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return value in ("true", "false")
    return True


def read_policy(path: Path) -> dict[str, Any]:
    """Return the checked keys of a policy file.

    Raises
    ------
    PolicyError
        Names the file, the key and what is wrong with it.
    """
    try:
        stamp = path.stat()
        return dict(_parsed(path, stamp.st_mtime_ns, stamp.st_size))
    except OSError as error:
        raise PolicyError(f"policy={str(path)!r} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=8)
def _parsed(path: Path, _time: int, _size: int) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PolicyError(f"{path}: no TOML: {error}") from None
    for key, value in content.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(KEYS)}"
            raise PolicyError(f"{path}: unknown key {key!r}; {hint}")
        try:
            check(key, value)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from None
    uncounted = [mode for mode in content.get("privacy", []) if mode not in ("dp", OLD_DP)]
    for key in ("max-epsilon", "run-epsilon", "require-privacy"):
        if uncounted and content.get(key):
            raise PolicyError(
                f"{path}: privacy allows {uncounted[0]!r}, which no budget counts; leave out "
                f"{key} or {uncounted[0]!r}"
            )
    return content


def whole_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node config with the keys of its policy file in it, and what the file leaves out.

    A file that is given denies what it does not name: modes other than ``dp``, labels, updates
    in the clear.

    Raises
    ------
    PolicyError
        Where the file cannot be used, or a key is unknown, of the wrong type or given twice.
    """
    for key, value in config.items():
        if key not in NODE_KEYS:
            raise PolicyError(_unknown(key))
        check(key, value)
    if "policy" not in config:
        return dict(config)
    path = Path(str(config["policy"]))
    if not path.is_absolute():
        raise PolicyError(f"policy={str(path)!r}: give the absolute path in --node-config")
    content = read_policy(path)
    if twice := sorted(set(content) & set(config)):
        raise PolicyError(f"{twice[0]} is in the node config and in {path}: keep one")
    rest = {key: value for key, value in config.items() if key != "policy"}
    denied = {"privacy": ["dp"], "clear-updates": False, "share-labels": False}
    return {**denied, **rest, **content, "policy-file": str(path)}


def _unknown(key: str) -> str:
    """Return what to say of a key that no node config has; the nearest right one, if there is."""
    close = difflib.get_close_matches(key.replace("_", "-").lower(), NODE_KEYS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(NODE_KEYS)}"
    return f"{key}: unknown in a node config; {hint}"


EXAMPLE = """\
# What the owner of this device allows, whatever a server asks. Name this file in the SuperNode's
# node config: policy="/absolute/path/of/this/file". Every key may be left out.

# The most that may ever be released about this data, over all runs, counted at this delta.
max-epsilon = 3.0
delta = 1e-5
# The most that one run may add to it.
run-epsilon = 1.0

# Runs this device takes part in. Left out, studies and methods are any; privacy is "dp" only.
studies = ["consensus-graph", "joint-precision", "cluster-admm"]
methods = ["fedgl", "group", "fused", "moments"]
privacy = ["dp"]

# Whether updates may be sent that are neither masked by secure aggregation nor counted above.
clear-updates = false
# Whether the labels of graphs may be told, where a run asks for them.
share-labels = false
# Losses and models of other installed packages that a run may use, by name. None by default.
names = []

# Secure sums: the fewest clients, the smallest share of holders that opens a secret, whom to trust.
fewest-clients = 5
fewest-share = 0.67
# signing-key = "/etc/trellis/key.pem"
# trusted-keys = "/etc/trellis/peers.txt"
# Noise in secure sums: whose this device counts on beside its own ("nobody", those with "signed"
# keys, or "anyone" that the server names), and which share of them it takes for the server's.
count-noise-of = "signed"
colluding = 0.2

# What one message may cost: any whole number among a run's settings, its size, its seconds.
most-steps = 10000
most-megabytes = 200
most-seconds = 600
"""
