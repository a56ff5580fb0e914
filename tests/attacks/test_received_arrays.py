"""A server that puts what it likes into the arrays of a message.

What is not finite, or so large that arithmetic on it is not, can carry one record past every
bound: 1e308 less 1e308 is NaN for the records of one pattern and a number for all others. So a
device refuses such an array by the message alone, before any of its records meets it. What it does
accept leaves every summand within its bound; and a summand that is not finite all the same is an
error on the device, never a 0 in the sum.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from tests.apps.device_logs import reasons
from tests.apps.owner_runs import devices
from tests.test_architecture import NAMES, STUDIES, reached
from trellis import apps
from trellis.apps.common.evaluation.holding import held_out_rows
from trellis.apps.common.node import Node
from trellis.apps.common.private.kept import kept_results
from trellis.apps.common.runner import make_run_config
from trellis.apps.joint_precision.client_app import score as score_of
from trellis.apps.joint_precision.private import score
from trellis.apps.joint_precision.private.concordance import learning_count
from trellis.privacy.accounting.budget import DeviceLedger
from trellis.privacy.device import log
from trellis.sim.grid import LocalGrid
from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import Client
from trellis.strategies.core.secure import SecureSum

from .same_device import with_secret
from .test_private_graphs import graphs
from .test_private_studies import device

# --- every array that a server sends -------------------------------------------------------------

CLIENTS, N, D = 4, 40, 4
DP = {"privacy": "dp", "held-out": 0.3, "epsilon": 8.0}
PLAIN = {"privacy": "none", "rounds": 3}
SERVERS = {"servers": 1, "topology": "complete"}
SHARED = {**SERVERS, "standardise": "shared"}
SCALES = {"offset", "scale", "target"}
# By study: settings, and the arrays that devices are sent in such a run.
RUNS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("consensus-graph", DP, {"consensus", "noise"}),
    ("consensus-graph", {**DP, "method": "fedavg"}, {"consensus", "noise", "weights"}),
    ("consensus-graph", {**PLAIN, "local-steps": 3}, {"consensus", "own", "weights"}),
    (
        "consensus-graph",
        {**PLAIN, "method": "fedavg", "secure-aggregation": True, "tolerance": 0.0},
        {"consensus", "slope", "weights"},
    ),
    ("joint-precision", DP, {"consensus", "points"}),
    (
        "joint-precision",
        {**DP, "method": "pooled"},
        {"consensus", "precision", "sparse", "shared"},
    ),
    (
        "joint-precision",
        {**PLAIN, "lambda1": 0.2, "wire": "float32"},
        {"point", "support", "nonzero", "labels", "precision", "sparse", "shared"},
    ),
    ("joint-precision", {**PLAIN, "method": "glasso"}, {"points", "precision", "sparse"}),
    (
        "server-graph",
        {**DP, **SHARED, "rounds": 3, "batch": 10},
        {"model", *SCALES},
    ),
    (
        "server-graph",
        {**PLAIN, **SHARED, "secure-aggregation": "on", "method": "none"},
        {"model", "centroid", *SCALES},
    ),
    (
        "cluster-admm",
        {**DP, "standardise": "shared", "clusters": "1", "loss": "logistic"},
        {"models", "pulls", *SCALES},
    ),
    (
        "cluster-admm",
        {**PLAIN, **SHARED, "clusters": "auto", "assign-every": 1, "rounds": 6, "loss": "ridge"},
        {"v", "models", "model", *SCALES},
    ),
    (
        "gromov-wasserstein",
        {**DP, "method": "fedavg", "rounds": 2, "classes": 3, "downstream": "none"},
        {"weights", "near", "near-owner", "own", "near-distance"},
    ),
    (
        "gromov-wasserstein",
        {**PLAIN, "method": "fedavg", "rounds": 2, "classes": 3, "downstream": "none"},
        {"weights", "near", "near-owner", "own", "near-distance"},
    ),
]
# As many as the server likes.
FREE = {("query.enrol", "points"), ("train", "points"), ("query.personal", "points"),
        ("evaluate.losses", "models")}  # fmt: skip
PAST_THE_CHECK = ("wire.arrays", "wire.unpack", "unpack", "arrays")
SILENCE = {"personal": {"came": True}}


def changed(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what no device may compute with, in the place of an array."""
    if array.dtype.kind == "f":
        odd = [np.nan, np.inf, -np.inf]
        odd += [1e308, -1e308, 1.01e100] if array.dtype == np.float64 else []
        for value in odd if array.size else ():
            for place in {0, array.size - 1}:
                other = array.copy()
                other.flat[place] = value
                yield f"{value} at {place}", other
        other = "float32" if array.dtype == np.float64 else "float64"
        yield other, array.astype(other)
        yield "complex", array.astype(np.complex128)
    else:
        yield "reals", array.astype(np.float64)
    yield "longer", np.concatenate([array, array[:1]]) if array.size else np.ones(1, array.dtype)
    yield "more dimensions", array[None]
    yield "text", np.full(array.shape, "1.0")


class Tampering(LocalGrid):
    """A server that sends every new kind of array to a device in all the wrong ways first."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: set[tuple[str, str, str]] = set()
        self.busy = False

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers: list[str] = []
        for message in messages:
            if not self.busy:
                self.busy = True
                self.tamper(message)
                self.busy = False
            numbers += super().push_messages([message])
        return numbers

    def tamper(self, message: Message) -> None:
        kind, order = message.metadata.message_type, message.content.get("order", {})
        if order.get("ask") == "units" or kind.endswith("_units"):
            return  # a sum that no array is read for
        for name, record in list(message.content.items()):
            for key in list(record) if isinstance(record, ArrayRecord) else ():
                if (kind, name, key) not in self.seen:
                    self.seen.add((kind, name, key))
                    self.send_changed(message, name, key)

    def send_changed(self, message: Message, name: str, key: str) -> None:
        kind, node_id = message.metadata.message_type, message.metadata.dst_node_id
        for what, array in changed(wire.unpack(message.content[name][key])):
            if what == "longer" and (kind, key) in FREE:
                continue
            content = RecordDict(dict(message.content))
            content[name] = wire.record({**dict(message.content[name].items()), key: array})
            state = Path(str(self._nodes[node_id].node_config["state-path"]))
            before = DeviceLedger(state).entries(), len(kept_results(state)), len(log.read(state))
            (reply,) = self.send_and_receive([Message(content, node_id, kind)])
            case = f"{kind}: {name}/{key}, {what}"
            if kind == "query.enrol":  # with the first round's question, which is asked again
                assert set(reply.content) == {"client"}, case
                continue
            if kind in ("query.personal", "evaluate"):
                told = {n: dict(r) for n, r in reply.content.items()}
                assert told == SILENCE, case
            else:
                assert reply.has_error(), case
                assert "device error E3" in reply.error.reason, case
            (line,) = log.read(state)[before[2] :]
            assert line["what"] == "error", case
            # Refused for what it is: nothing was computed, entered or kept.
            assert line["error"].startswith("BadReply("), (case, line["error"])
            assert (DeviceLedger(state).entries(), len(kept_results(state))) == before[:2], case


def tables(study: str) -> list[dict[str, Any]]:
    if study == "gromov-wasserstein":
        return [graphs() for _ in range(CLIENTS)]
    found = []
    for k in range(CLIENTS):
        rng = np.random.default_rng(k)
        X = rng.standard_normal((N, D))
        X[:, 1] += X[:, 0]
        found.append({"X": X, "y": np.sign(X[:, 0] + 0.2 * rng.standard_normal(N))})
    return found


@pytest.mark.parametrize(
    ("study", "settings", "sent"), RUNS, ids=[f"{study} {settings}" for study, settings, _ in RUNS]
)
def test_no_device_computes_with_what_is_no_array_of_its_round(study, settings, sent, tmp_path):
    """Nothing is lost by that either: the run, made as it should be, goes on to its end."""
    if study == "gromov-wasserstein":
        pytest.importorskip("torch")
    nodes = devices(tmp_path, tables(study), **{"server": 0, "cluster": 0})
    config = make_run_config(study, {"clients": CLIENTS, **settings})
    config |= {"out": str(tmp_path / "out")}
    grid = Tampering(apps.client_app, nodes, config)
    with grid:
        apps.server_app(grid, Context(grid.run.run_id, 1, {}, RecordDict(), config))
    assert {key for _, _, key in grid.seen} == sent
    assert '"completed"' in (tmp_path / "out" / "run.json").read_text()
    for node in nodes:
        assert len(kept_results(Path(node["state-path"]))) == 1


def test_a_client_reads_no_array_past_the_check():
    """By `wire.received` alone; `wire.arrays` and `wire.unpack` are for what it has kept itself."""
    names = reached(
        ["trellis.apps.dispatch", *(f"{study}.client_app" for study in STUDIES)], lazy=True
    )
    found = 0
    for name in sorted(name for name in names if name.startswith("trellis.apps.")):
        text = NAMES[name].read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PAST_THE_CHECK:
                found += 1
                assert "state" in ast.unparse(node.args[0]), f"{name}: {ast.unparse(node)}"
    assert found


# --- one sample of joint-precision's score -------------------------------------------------------

P = 8
SCORED = {"privacy": "dp", "epsilon": 1.0, "clients": 3, "held-out": 0.5}


def poison(size: float) -> np.ndarray:
    """Return a consensus whose predictions for variable 1 cancel for samples of one pattern."""
    matrix = np.zeros((P, P))
    matrix[[1, 5], 0], matrix[[2, 6], 0] = -size, size
    return matrix


def held_out_neighbours(folder: Path) -> list[dict[str, Any]]:
    """Return two devices with the same secret: one held-out sample differs."""
    values = np.random.default_rng(5).standard_normal((8, P))
    nodes = [with_secret(device(folder / str(k), values)) for k in range(2)]
    context = Context(1, 1, nodes[0], RecordDict(), make_run_config("joint-precision", SCORED))
    number = len(values) - learning_count(len(values), SCORED["held-out"])
    first, second = np.flatnonzero(held_out_rows(len(values), number, Node.of(context), 1, "dp"))[
        :2
    ]
    values[first], values[second] = 3.0, -3.0  # a pair with all signs alike
    device(folder / "0", values)
    values[second, 1] = 9.0
    device(folder / "1", values)
    return nodes


def added(node: dict[str, Any], consensus: np.ndarray) -> np.ndarray:
    """Return what a device adds to the sum of scores, before noise and masks."""
    run_config = make_run_config("joint-precision", SCORED)
    content = RecordDict({"config": ConfigRecord({"server-round": 1})})
    content["arrays"] = wire.record({"consensus": consensus})
    with LocalGrid(apps.client_app, [node], run_config):
        message = Message(content, 1, "evaluate.secagg_masked")
        found = score_of(message, Context(7, 1, node, RecordDict(), run_config))
    return found.arrays["scores"]


@pytest.mark.parametrize("size", [1.7e308, 1e308, 1.01e100, np.inf, np.nan])
def test_a_consensus_whose_predictions_are_no_numbers_is_refused_whatever_the_samples(
    size, tmp_path
):
    for node in held_out_neighbours(tmp_path):
        with pytest.raises(wire.BadReply, match=r"^consensus"):
            added(node, poison(size))


@pytest.mark.parametrize("size", [wire.LARGEST, 1e-300, 5e-324])
def test_with_what_is_accepted_one_sample_moves_the_score_by_one_at_most(size, tmp_path):
    one, other = (added(node, poison(size)) for node in held_out_neighbours(tmp_path))
    assert np.all(np.isfinite([one, other]))
    assert 0.0 < np.linalg.norm(one - other) <= score.SENSITIVITY


# --- a summand that is not finite all the same ---------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_summand_that_is_not_finite_is_an_error_on_the_device_and_no_zero(
    value, tmp_path, monkeypatch
):
    monkeypatch.setattr(score, "right_signs", lambda *_: value)
    nodes = devices(tmp_path, tables("joint-precision"))
    config = make_run_config("joint-precision", {"clients": CLIENTS, **DP})
    with LocalGrid(apps.client_app, nodes, config) as grid:
        clients = [
            Client(f"ward{k}", k, N, [f"v{j}" for j in range(D)], node_id)
            for k, node_id in enumerate(grid._nodes)
        ]
        config = ConfigRecord({"server-round": 1})
        arrays = wire.record({"consensus": np.eye(D)})
        asked = {k: RecordDict({"config": config, "arrays": arrays}) for k in range(CLIENTS)}
        secure = SecureSum(24, noisy=True)
        found = secure.gather_groups(
            grid, {"": asked}, clients, 1, 30.0, layout={"scores": (2,)}, category="evaluate"
        )
    assert not found[""].total
    assert all("device error E3" in text for text in found[""].failures.values())
    for node in nodes:
        assert "scores[0] = " in reasons(Path(node["state-path"]))[-1]
        assert "only finite numbers" in reasons(Path(node["state-path"]))[-1]
