"""Devices with files of their own, on the in-process engine."""

from __future__ import annotations

import numpy as np

from trellis import apps
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.sim.grid import LocalGrid, run_local

STUDY = "consensus-graph"


def files(folder, count, columns="abcd", rows=20):
    """Write one table a device; return their node configs."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = []
    for number in range(count):
        values = np.random.default_rng(number).normal(size=(rows, len(columns)))
        path = folder / f"site{number}.csv"
        np.savetxt(path, values, delimiter=",", header=",".join(columns), comments="")
        configs.append({"data-path": str(path), "partition-id": number})
    return configs


def run_config(clients, study=STUDY, **settings):
    settings = {key.replace("_", "-"): value for key, value in settings.items()}
    top = {key: settings.pop(key) for key in ("out", "resume", "devices") if key in settings}
    return make_run_config(study, {"clients": clients, **settings}) | top


def grid_of(configs, clients=None, *, faults=None, names=(), **settings):
    config = run_config(clients or len(configs), **settings)
    return LocalGrid(apps.client_app, configs, config, faults=faults, names=names)


def run(configs, out, clients=None, *, faults=None, names=(), **settings):
    """Run the study on these devices; return its result."""
    config = run_config(clients or len(configs), out=str(out), **settings)
    run_local(apps.server_app, apps.client_app, configs, config, faults=faults, names=names)
    return RunResult.load(out)
