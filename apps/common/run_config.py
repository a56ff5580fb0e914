"""The run config of a Flower app, completed: every setting under its study, none left open.

Flower hands an app one flat table. The keys of `COMMON` are of every run. A study's settings stand
under its name in the app of all studies (``consensus-graph.rho``), and by themselves in the study's
own app (``rho``). `complete` returns the first form, which all other code reads. If a table has
both, the key under the study's name counts.

Apps leave some numbers open, as 0 (`LEFT_OPEN`): ``clients = 0`` is as many as there are simulated
SuperNodes, or files in ``data``; ``servers = 0`` is chosen for that number. Every client and the
server complete the table by themselves, from the same numbers to the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from trellis.apps.common.own_data.choosing import choose_for_number
from trellis.apps.common.settings import Scalar, StudyConfig, config_class
from trellis.apps.common.tables import client_sources, shared_dataset
from trellis.apps.network.place import DEFAULTS as PLACE
from trellis.apps.network.place import STUDIES as WITH_SERVERS

COMMON: dict[str, Scalar] = {
    "study": "consensus-graph",
    "seed": 1,
    "out": "",
    "resume": False,
    "force": False,
    "report": True,
    "data": "",
    "devices": "",
    "chosen": "",
    **PLACE,
}
LEFT_OPEN = ("clients", "servers")


def app_settings(kind: type[StudyConfig]) -> dict[str, Scalar]:
    """Return a study's settings as they stand in a Flower app, with 0 for what is left open."""
    return {k: 0 if k in LEFT_OPEN else v for k, v in kind.defaults().items()}


def common_settings(study: str) -> dict[str, Scalar]:
    """Return the settings of every run that have a meaning for a study."""
    unused = () if study in WITH_SERVERS else PLACE
    return {k: v for k, v in COMMON.items() if k not in unused} | {"study": study}


def complete(run_config: dict[str, Any], supernodes: int = 0) -> dict[str, Any]:
    """Return a run config with every setting under its study, and what is left open chosen.

    Parameters
    ----------
    run_config : as Flower hands it over; one that is complete is returned as it is
    supernodes : how many simulated SuperNodes there are; 0 on devices, where ``clients = 0`` stays

    Raises
    ------
    ConfigError
        For a study that nobody has, or a number of clients or servers that is none.
    DataError
        If the folder ``data`` cannot be listed.
    """
    global _last
    last = _last  # which another thread may replace
    if last is None or last[1] != supernodes or last[0] != run_config:
        found = by_study(run_config)
        if supernodes:  # a device parses settings after its policy has judged them, and not before
            study = str(found["study"])
            config_class(study).typed("clients", found.get(f"{study}.clients", 0))
        if left_open(found):
            found = _chosen(found, supernodes)
        last = dict(run_config), supernodes, None if found == run_config else found
        _last = last
    return run_config if last[2] is None else last[2]


def by_study(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run config with every setting under its study, whichever form it has."""
    study = str(run_config["study"])
    flat = _keys_of(study) & run_config.keys()
    rest = {key: value for key, value in run_config.items() if key not in flat}
    return {**{f"{study}.{key}": run_config[key] for key in sorted(flat)}, **rest}


def left_open(run_config: Mapping[str, Any]) -> list[str]:
    """Return which numbers of a run config by study are left open, as 0."""
    study = str(run_config["study"])
    given = {key: run_config.get(f"{study}.{key}") for key in LEFT_OPEN}
    # Not parsed: what is no number is refused later, on a device by its policy first.
    return [key for key, value in given.items() if value in (0, "0") and value is not False]


def _chosen(run_config: Mapping[str, Any], supernodes: int) -> dict[str, Any]:
    """Return a run config by study with what is left open chosen, if the clients are known."""
    study = str(run_config["study"])
    kind, prefix = config_class(study), f"{study}."
    settings = {k.removeprefix(prefix): v for k, v in run_config.items() if k.startswith(prefix)}
    # A device reads no folder that a run config names.
    files = _own_files(run_config) if supernodes else []
    given = kind.typed("clients", settings.get("clients", kind().clients))[1]
    clients = int(given) or len(files) or supernodes
    if not clients:
        return dict(run_config)
    terms: dict[str, Any] = {"files": files[:clients], "simulated": bool(supernodes)}
    chosen = choose_for_number(kind, settings, clients, **terms)
    return {
        **run_config,
        "chosen": ", ".join(chosen.reasons.values()),
        **{f"{prefix}{key}": value for key, value in chosen.settings.items()},
    }


def _own_files(run_config: Mapping[str, Any]) -> list[Path]:
    """Return the clients' own files in a simulation, in order; none if their data is made."""
    data = str(run_config.get("data", ""))
    return client_sources(Path(data)) if data and not shared_dataset(Path(data)) else []


# The run config that was completed last, for how many SuperNodes, and what it gave if that is
# another: a client asks at every message.
_last: tuple[dict[str, Any], int, dict[str, Any] | None] | None = None


@lru_cache(maxsize=16)
def _keys_of(study: str) -> frozenset[str]:
    return frozenset(config_class(study).kinds())
