"""A server that chooses the offsets and scales by which devices map their records.

It may send any, other ones in every message, and ask for sums of features as often as it likes: a
device tells nothing of one record but by a counted release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from tests.apps.device_logs import reasons
from trellis import apps
from trellis.apps.cluster_admm.private import device as cluster_admm
from trellis.apps.common.own_data import units
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.settings import config_class
from trellis.apps.consensus_graph import client_app as consensus_graph
from trellis.apps.consensus_graph.private import pooled
from trellis.apps.server_graph import client_app as server_graph
from trellis.apps.server_graph.private import Terms, digest
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.device import log
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import enrol
from trellis.strategies.core.secure import SecureSum

from .same_device import with_secret
from .server_studies import device
from .test_private_consensus import asked_for, summands_of
from .test_private_studies import ask, observable
from .test_private_studies import device as table_device

D = 3
PLAIN = {"offset": np.zeros(D), "scale": np.ones(D), "target": np.array([0.0, 1.0])}
BAD = {
    "nan": {"offset": np.full(D, np.nan)},
    "infinite": {"offset": np.full(D, np.inf)},
    "zero": {"scale": np.zeros(D)},
    "negative": {"scale": -np.ones(D)},
    "huge": {"scale": np.full(D, 1e308)},
    "tiny": {"scale": np.full(D, 1e-308)},
    "too long": {"scale": np.ones(D + 1)},
    "too short": {"offset": np.zeros(D - 1)},
    "whole numbers": {"scale": np.ones(D, dtype=np.int64)},
    "no target": {"target": np.zeros(0)},
    "target of zero": {"target": np.zeros(2)},
}
ODD = {
    "nan": (np.nan, 0.0, 0.0),
    "1e300": (1e300, -1e300, 1e300),
    "1e-300": (1e-300, 0.0, 0.0),
    "far off": (1e75, -1e75, 3.0),
}


# --- one noisy sum of all clients' statistics ----------------------------------------------------


def _graph_terms(node: dict[str, Any], settings: dict[str, Any], kind: str = "train") -> Any:
    """Return what a device adds to a sum of consensus-graph: of statistics, or of scores."""
    config = make_run_config("consensus-graph", {"privacy": "dp", "clients": 3, **settings})
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    public = {"consensus": np.full(6, 0.3), "noise": np.array([0.1])}
    content["arrays"] = wire.record(public)
    answer = consensus_graph.summands if kind == "train" else consensus_graph.score
    with LocalGrid(apps.client_app, [node], config):
        message = Message(content, 1, f"{kind}.secagg_masked")
        return answer(message, Context(next(_run), 1, node, RecordDict(), config))


def test_scales_that_move_only_some_records_do_not_tell_whether_these_are_there(tmp_path):
    """An offset of 1e-18 moves no number above 0.01, and one of 0.001: is there one?

    Were the noise the same where the mapped records are the same, two runs with scales that differ
    a hair would tell, for nothing. It is fresh in every sum, and every sum is counted.
    """
    rng = np.random.default_rng(0)
    plain = ",".join(f"v{k}:0:1" for k in range(1, 5))
    same, spent = [], []
    for name, last in (("large", 1.5), ("small", 1e-3)):
        X = 1.0 + rng.random((20, 4))
        X[-1, 0] = last
        node = table_device(tmp_path, X, name)
        told = []
        for scales in (plain, plain.replace("v1:0:1", "v1:1e-18:1"), plain):
            chosen = {"clip": 1.0, "standardise": "public", "scales": scales}
            mine = _graph_terms(node, chosen)
            size = sum(array.size for array in mine.arrays.values())
            with log.working_on(log.Occasion(f"run {len(told)}", "consensus-graph", "train", "")):
                told.append(mine.noise(lambda *_, **__: 1, 20, size)[0])
        same.append([np.array_equal(told[0], other) for other in told[1:]])
        spent.append(len(DeviceLedger(Path(node["state-path"])).events()))
    assert same == [[False, False]] * 2
    assert spent == [3, 3]


@pytest.mark.parametrize("scale", ["5e-324", "1e-308", "1", "1.7e308"])
@pytest.mark.parametrize("offset", ["-1.7e308", "1e-320", "1.7e308"])
def test_scales_beyond_floats_make_no_record_refuse(offset, scale, tmp_path):
    scales = ",".join(f"v{k}:{offset}:{scale}" for k in range(1, 5))
    chosen = {"held-out": 0.3, "standardise": "public", "scales": scales}
    config = make_run_config("consensus-graph", {"privacy": "dp", "clients": 3, **chosen})
    X = np.random.default_rng(1).standard_normal((12, 4))
    seen, terms = [], []
    for name, last in (("a", X[0].copy()), ("b", [1.7e308, -1.7e308, 0.0, 1e-320])):
        X[-1] = last
        node = with_secret(table_device(tmp_path / name, X))
        seen.append([observable(answer) for answer in ask(config, node, ("query.enrol", {}, {}))])
        terms.append([_graph_terms(node, chosen, kind) for kind in ("train", "evaluate")])
    assert seen[0] == seen[1]
    assert "error" not in seen[0]
    for one, other in zip(*terms, strict=True):
        found = [np.concatenate([np.ravel(v) for v in t.arrays.values()]) for t in (one, other)]
        assert np.all(np.isfinite(found))
        assert np.linalg.norm(found[0] - found[1]) <= one.noise.__self__.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("place", range(12))
def test_one_record_moves_the_sum_of_graphs_by_no_more_than_is_counted(place, clip, tmp_path):
    rng = np.random.default_rng(place)
    for trial, odd in enumerate(ODD.values()):
        X = rng.normal(size=(12, 4)) * 10.0 ** rng.uniform(-70, 70)
        other = X.copy()
        other[place] = [*odd, -X[place, 3]]
        pairs = zip(X[place], 10.0 ** rng.uniform(-75, 75, 4), strict=True)
        scales = ",".join(f"v{k}:{o!r}:{s!r}" for k, (o, s) in enumerate(_floats(pairs), 1))
        chosen = {"clip": clip, "held-out": 0.4, "standardise": "public", "scales": scales}
        for kind in ("train", "evaluate"):
            found = []
            for name, values in (("a", X), ("b", other)):
                node = with_secret(table_device(tmp_path / f"{trial}{name}", values))
                mine = _graph_terms(node, chosen, kind)
                found.append(np.concatenate([np.ravel(v) for v in mine.arrays.values()]))
            limit = mine.noise.__self__.sensitivity * (1.0 + 1e-12)
            assert np.linalg.norm(found[0] - found[1]) <= limit, kind


def _floats(pairs: Any) -> list[tuple[float, float]]:
    return [(float(offset), float(scale)) for offset, scale in pairs]


def scales_onto_a_constant(record: np.ndarray, seed: int) -> str:
    """Return scales by which one guessed record has the same value in all variables.

    And such a value that the mean of so many of it, in floats, is another one.
    """
    rng = np.random.default_rng(seed)
    for _ in range(100_000):
        level = float(10.0 ** rng.uniform(28, 32))
        scale = record / level
        if np.all(record / scale == level) and np.full((1, record.size), level).mean() != level:
            return ",".join(f"v{k}:0.0:{s!r}" for k, s in enumerate(scale.tolist(), start=1))
    raise AssertionError("no such scales; another record may have some")


RECORD = np.array([37.3, 141.0, 92.0, 88.0, 96.0, 7.9])


def neighbours() -> list[np.ndarray]:
    """Return data without the guessed record, and with it."""
    rng = np.random.default_rng(3)
    without = np.round(rng.normal([36.6, 120, 80, 70, 98, 5.4], [0.5, 12, 9, 10, 1.5, 1], (200, 6)))
    with_it = without.copy()
    with_it[17] = RECORD
    return [without, with_it]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clip", [1e-30, 1.0, 25.0])
def test_scales_that_make_a_guessed_record_constant_do_not_carry_it_past_the_clip(
    seed, clip, tmp_path
):
    """Its squared differences are 0, but rounding leaves something of its mean, of any size."""
    settings = {"privacy": "dp", "epsilon": 1.0, "clients": 3, "clip": clip}
    settings |= {"standardise": "public", "scales": scales_onto_a_constant(RECORD, seed)}
    found = []
    for number, values in enumerate(neighbours()):
        node = with_secret(table_device(tmp_path / str(number), values))
        found.append(summands_of(node, settings, asked_for()).arrays["shape"])
    assert np.all(np.isfinite(found))
    assert np.linalg.norm(found[0] - found[1]) <= pooled.sensitivity(clip) * (1.0 + 1e-9)


# --- what is no scale ----------------------------------------------------------------------------


def _records(first: Any = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(12, D)), rng.normal(size=12)
    if first is not None:
        X[0], y[0] = first, 1e300
    return X, y


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_scale_is_refused_whatever_the_records_are(what, tmp_path):
    settings = {"privacy": "dp", "clients": 3, "clusters": "1"}
    config = config_class("cluster-admm").from_settings(settings)
    run_config = {"study": "cluster-admm", "seed": 1, "out": "", **config.run_config()}
    sent = {**PLAIN, **BAD[what], "models": np.zeros((1, D + 1))}
    for name, first in (("one", None), ("other", ODD["1e300"])):
        node = with_secret(device(tmp_path / name, *_records(first)))
        context = Context(next(_run), 1, node, RecordDict(), run_config)
        with pytest.raises(ValueError, match=r"scale|offset|target"):
            cluster_admm.summands(_Sent(sent, {"sum": "scales", "server-round": 1}), context)
        assert DeviceLedger(tmp_path / name / "state").events() == []


# --- noisy sums ----------------------------------------------------------------------------------

SUMS = {
    "server-graph": {"method": "fedavg", "batch": 0},
    "cluster-admm": {"clusters": "1"},
}
LOSSES = {"server-graph": ("logistic", "least-squares"), "cluster-admm": ("logistic", "ridge")}
HANDLERS = {
    "steps": server_graph.summands, "score": server_graph.score, "units": server_graph.sizes,
}  # fmt: skip
CATEGORIES = {"score": "evaluate", "units": "train.units"}
_run = iter(range(1, 10**6))


class _Sent:
    """A message as handlers read it."""

    class metadata:
        message_type = "train.secagg_masked"

    def __init__(self, arrays: dict[str, np.ndarray], order: dict[str, Any]) -> None:
        self.content = RecordDict({"arrays": wire.record(arrays), "config": ConfigRecord(order)})


def _asked(study: str, config: Any, w: np.ndarray, width: float) -> list[tuple[str, dict, dict]]:
    """Return all that can be asked for in a sum, with arrays and order."""
    if study == "cluster-admm":
        terms = {"server-round": 1, "width": width, "length": 1.0, "weight": 0.6, "whole": True}
        kinds = ("units", "scales", "moments", "score")
        return [(kind, {"models": w[None]}, {**terms, "sum": kind}) for kind in kinds]
    known = {"server-round": 1, "settings": digest(config)}
    noise = Terms.of(config).needed_deviation(12)
    orders = {"units": {}, "score": {}, "steps": {"deviation": noise}}
    return [(kind, {"model": w}, {**known, **order}) for kind, order in orders.items()]


def _terms(folder: Path, study: str, config: Any, records: Any, scaling: Any, w: Any, width: float):
    """Return what a device would add to every sum before noise, and the sensitivity it counts."""
    node = with_secret(device(folder, *records))
    run_config = {"study": study, "seed": 1, "out": "", **config.run_config()}
    context = Context(next(_run), 1, node, RecordDict(), run_config)
    found = {}
    for kind, arrays, order in _asked(study, config, w, width):
        handler = HANDLERS[kind] if study == "server-graph" else cluster_admm.summands
        mine = handler(_Sent({**arrays, **scaling}, order), context)
        values = np.concatenate([np.ravel(mine.arrays[name]) for name in sorted(mine.arrays)])
        found[kind] = values, mine.noise.__self__.sensitivity
    return found


@pytest.mark.parametrize("place", range(12))
@pytest.mark.parametrize("study", SUMS)
def test_one_record_moves_a_sum_by_no_more_than_is_counted_whatever_the_scales(
    study, place, tmp_path
):
    rng = np.random.default_rng(place)
    for trial, loss in enumerate(LOSSES[study] * 3):
        settings = {
            "privacy": "dp", "clients": 4, "loss": loss, "held-out": 0.4,
            "standardise": "shared", **SUMS[study],
        }  # fmt: skip
        config = config_class(study).from_settings(settings)
        X, y = _records()
        X *= 10.0 ** rng.uniform(-70, 70)
        other_X, other_y = X.copy(), y.copy()
        other_X[place] = list(ODD.values())[trial % len(ODD)] if trial % 2 else -X[place]
        other_y[place] = -(10.0 ** rng.uniform(-70, 70))
        scaling = {
            "offset": np.clip(X[place], -1e75, 1e75) if trial % 3 == 0 else np.zeros(D),
            "scale": 10.0 ** rng.uniform(-75, 75, D),
            "target": np.array([y[place], 10.0 ** rng.uniform(-75, 75)]),
        }
        w = rng.normal(size=D + 1) * 10.0 ** rng.uniform(-100, 101)
        w, width = np.clip(w, -wire.LARGEST, wire.LARGEST), 10.0 ** rng.uniform(-12, 12)
        terms = [
            _terms(tmp_path / f"{trial}{name}", study, config, records, scaling, w, width)
            for name, records in (("a", (X, y)), ("b", (other_X, other_y)))
        ]
        for kind, (one, sensitivity) in terms[0].items():
            other, same = terms[1][kind]
            assert same == sensitivity
            assert np.all(np.isfinite([one, other])), kind
            assert np.linalg.norm(one - other) <= sensitivity * (1.0 + 1e-12), kind


# --- sums of features ----------------------------------------------------------------------------


class Four:
    """A server that asks four devices for sums over whichever of them it likes."""

    def __init__(self, folder: Path, study: str, **settings: Any) -> None:
        chosen = {"clients": 4, "standardise": "shared", **SUMS[study], **settings}
        self.config = config_class(study).from_settings(chosen)
        self.folder, nodes = folder, []
        for k in range(4):
            rng = np.random.default_rng(k)
            X, y = rng.normal(size=(12, D)), rng.choice([-1.0, 1.0], 12)
            more = {"partition-id": k, "count-noise-of": "anyone"}
            nodes.append(device(folder / str(k), X, y, **more))
        run_config = {"study": study, "seed": 1, "out": "", **self.config.run_config()}
        self.grid = LocalGrid(apps.client_app, nodes, run_config)
        self.secure = SecureSum(noisy=self.config.sums, dropout=0.1, colluding=0.0)

    def __enter__(self) -> Four:
        self.grid.__enter__()
        self.clients = enrol(self.grid, 4, 10.0, 10.0).clients
        return self

    def __exit__(self, *args: Any) -> None:
        self.grid.__exit__(*args)

    def sum(
        self, who: Any, layout: Any, order: Any, arrays: Any = None, kind: str = "train"
    ) -> Any:
        content = RecordDict({"config": ConfigRecord(order)})
        if arrays:
            content["arrays"] = wire.record(arrays)
        asked = {"": {k: RecordDict(dict(content)) for k in who}}
        found = self.secure.gather_groups(
            *(self.grid, asked, self.clients, 1, 10.0), layout=layout, category=kind
        )
        return found[""].total


def test_sums_of_features_over_other_clients_do_not_tell_one_client_s(tmp_path):
    """The sum over four less that over three is the fourth's means and deviations."""
    with Four(tmp_path, "server-graph", privacy="none", **{"secure-aggregation": "on"}) as server:
        layout, order = units.summands_layout(D), {"server-round": 0}
        assert server.sum(range(4), layout, order, kind="train.units")
        assert not server.sum(range(3), layout, order, kind="train.units")
        assert "sums of features is in a sum already" in " ".join(reasons(tmp_path / "0" / "state"))


@pytest.mark.parametrize("epsilon", [0.1, 8.0])
@pytest.mark.parametrize("held_out", [0.0, 0.4])
@pytest.mark.parametrize("study", SUMS)
def test_all_that_can_be_asked_for_again_and_again_spends_epsilon_at_most(
    study, held_out, epsilon, tmp_path
):
    settings = {"privacy": "dp", "epsilon": epsilon, "held-out": held_out}
    settings |= {"rounds": 2} if study == "server-graph" else {}
    w = np.zeros(D + 1)
    shapes = {
        "steps": {"gradient": (D + 1,)},
        "moments": {"cross": (2, D + 1), "power": (1,), "square": ((D + 1) * (D + 2) // 2,)},
        "units": {units.COUNTS: (D + int(study == "cluster-admm"), units.SIDES)},
        "scales": {"scales": (2, 41)},
        "score": {"terms": (1,)} if study == "server-graph" else {"score": (2,)},
    }
    with Four(tmp_path, study, **settings) as server:
        asked = _asked(study, server.config, w, 1.0)
        opened = dict.fromkeys((kind for kind, _, _ in asked), 0)
        for time in range(5):
            # Sums of features last as well: after all others, and with other scales every time.
            for kind, arrays, order in asked[:: -1 if time else 1]:
                scaling = {**PLAIN, "scale": np.full(D, 10.0**time)}
                sent = {**arrays, **scaling}
                sums = CATEGORIES.get(kind, "train") if study == "server-graph" else "train"
                opened[kind] += bool(server.sum(range(4), shapes[kind], order, sent, sums))
        assert opened["units"] == 1
        assert bool(opened["score"]) is bool(held_out)
        for k in range(4):
            ledger = DeviceLedger(tmp_path / str(k) / "state")
            assert len(ledger.events()) == sum(opened.values())
            assert 0.3 * epsilon <= ledger.spent() <= epsilon * (1.0 + 1e-6)
