"""What a device's process loads for one message: of every study, for every kind of message.

Flower starts a new process for each message, so what is loaded is paid for each time. Every message
here is one that a real run has sent, answered in a process of its own by a device with files.
"""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.devices import CASES, OTHER_CASES, Case, loaded_for, record_messages
from tests.studies import told

NEW_CASES = {
    f"{study}-{place}": Case(f"{study}-{place}", study, settings)
    for study, found in told("STRATEGIES").items()
    for place, settings in enumerate(found)
}
ALL_CASES = {**CASES, **OTHER_CASES, **NEW_CASES}
NEVER = {
    *("matplotlib", "networkx", "sklearn", "pandas", "joblib", "ray", "ot", "cvxpy", "jinja2"),
    *("dp_accounting", "numba", "sympy", "torchvision", "torch_geometric", "torch._dynamo"),
    *(
        "scipy.stats",
        "scipy.ndimage",
        "scipy.integrate",
        "scipy.interpolate",
        "trellis.sim",
        "trellis.apps.pages",
    ),
    *(
        "trellis.strategies.rounds",
        "trellis.strategies.core.secure",
        "trellis.privacy.secagg.server",
    ),
}
TORCH = {"torch"}
# Whole packages of scipy; single files of it are loaded by `privacy.numerics`, under no name.
SCIPY = {"scipy.linalg", "scipy.special", "scipy.optimize", "scipy.sparse", "scipy.spatial"}
SECURE = {"trellis.privacy.secagg.protocol"}
# The last message of a run, with and without a score of held-out records.
LAST = ("query.personal", "evaluate")
# What answers that needs: a model, L-BFGS, and the quantiles of Student's t.
TRAINS = ("train", "train.secagg_masked", "query.embed", *LAST)
KINDS = {
    "enrolment": {"query.enrol"},
    "rounds": {"train", "train.statistic", "train.screen", "evaluate.losses", "query.embed"},
    "sums": {"query.secagg_keys", "query.secagg_agree", "query.secagg_unmask"}
    | {"query.secagg_meet", "train.secagg_masked", "evaluate.secagg_masked"}
    | {"train.secagg_masked_units"},
    "the end": set(LAST),
}


def may_load(study: str, kind: str) -> set[str]:
    """Return what a message of this kind may load of all that."""
    allowed = SECURE if "secagg" in kind else set()
    if study == "gromov-wasserstein" and kind in TRAINS:
        return allowed | TORCH
    if study == "server-graph" and kind in LAST:
        return allowed | SCIPY
    if study == "cluster-admm" and kind in LAST:
        return allowed | {"scipy.special"}
    return allowed


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return what gives a case's messages by kind; each case is run once."""
    folder = tmp_path_factory.mktemp("recorded")
    return cache(lambda name: record_messages(ALL_CASES[name], folder / name))


@pytest.mark.parametrize("name", list(ALL_CASES))
def test_a_message_loads_what_it_needs_and_no_more(name, recorded):
    case, messages = ALL_CASES[name], recorded(name)
    assert "query.enrol" in messages
    assert set(messages) <= set().union(*KINDS.values()), "a kind that nobody has looked at"
    if name.endswith("dp"):
        assert "train.secagg_masked" in messages
    watched = NEVER | TORCH | SCIPY | SECURE
    for kind, loaded in loaded_for(messages).items():
        assert loaded & watched <= may_load(case.study, kind), f"{name}, {kind}"
        assert f"trellis.apps.{case.study.replace('-', '_')}.client_app" in loaded


def test_every_kind_of_message_is_among_them(recorded):
    """Of every study, those that its ClientApp answers."""
    seen: dict[str, set[str]] = {}
    for name, case in ALL_CASES.items():
        seen.setdefault(case.study, set()).update(recorded(name))
    for study, kinds in seen.items():
        wanted = {"query.enrol", "train", *LAST, "train.secagg_masked", "query.secagg_meet"}
        wanted |= {"evaluate.losses"} if study == "cluster-admm" else set()
        wanted |= {"query.embed"} if study == "gromov-wasserstein" else set()
        assert wanted <= kinds, study
