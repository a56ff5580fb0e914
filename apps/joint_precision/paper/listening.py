"""A run whose messages are listened to: what clients took, what they sent, what it gives away."""

from __future__ import annotations

import logging
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray

from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.dispatch import StudyClientApp, server_app
from trellis.sim.grid import run_local
from trellis.strategies.core import wire
from trellis.strategies.joint_precision.messages import read_step, read_step_order

from ..config import JointPrecisionConfig
from ..correlation import correlation, to_positive_semidefinite
from ..data import synthetic_table as table_of
from ..problem import recover_correlation

STUDY = JointPrecisionConfig.study
BITS_A_SECOND = 5e6  # the paper's bandwidth, "5M"
CLIENTS = 3


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings that every run repeats out of a table."""
    log = logging.getLogger("trellis")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


class ListeningClientApp(StudyClientApp):
    """The clients' app, and what the server may write down: every order and every reply.

    By round: ``seconds`` of all clients together, CPU seconds of the ``slowest``, the shares of the
    first one's numbers that are ``nonzero`` (down, up), the ``memory`` of the process in bytes,
    how ``busy`` it was with the server's part (CPU over time), and the seconds ``listening`` took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[int, float] = {}
        self.slowest: dict[int, float] = {}
        self.busy: dict[int, float] = {}
        self._last = (0, 0.0, 0.0)
        self.listening: dict[int, float] = {}
        self.nonzero: dict[int, tuple[float, float]] = {}
        self.memory: dict[int, float] = {}
        self.heard: tuple[int, RecordDict, RecordDict] | None = None

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message, and keep it if it is a step."""
        config: Mapping[str, Any] = message.content.config_records.get("config", {})
        step = message.metadata.message_type == "train"
        if step:
            self._note_between(int(config["server-round"]))
        before = time.process_time()
        reply = super().__call__(message, context)
        cpu = time.process_time() - before
        if step and reply.has_content():
            number = int(config["server-round"])
            spent = reply.content.metric_records["metrics"]["seconds"]
            self.seconds[number] = self.seconds.get(number, 0.0) + float(spent)  # type: ignore[arg-type]
            self.slowest[number] = max(self.slowest.get(number, 0.0), cpu)
            partition = int(context.node_config["partition-id"])
            self.heard = (partition, message.content, reply.content)
            begin = time.perf_counter()
            if number not in self.nonzero:
                self.nonzero[number] = _nonzero(message.content, reply.content)
                self.memory[number] = _resident()
            self.listening[number] = self.listening.get(number, 0.0) + time.perf_counter() - begin
            self._last = (number, time.process_time(), time.perf_counter())
        return reply

    def _note_between(self, number: int) -> None:
        """Keep the share of CPU in the time since the last reply, if that was of another round."""
        last, cpu, wall = self._last
        if 0 < last < number:
            share = (time.process_time() - cpu) / max(time.perf_counter() - wall, 1e-9)
            self.busy[last] = min(share, 1.0)


def _resident() -> float:
    """Return the memory of this process, in bytes; NaN where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return np.nan
    return float(pages * resource.getpagesize())


def _nonzero(asked: RecordDict, answered: RecordDict) -> tuple[float, float]:
    """Return the share of the numbers that are not 0, of what goes down and of what comes up."""
    down, up = wire.arrays(asked["arrays"]), wire.arrays(answered["arrays"])
    size = down["point"].size
    sent = np.count_nonzero(down["point"]) + down["nonzero"].size
    return sent / (2.0 * size), float(np.count_nonzero(up["omega"]) / size)


def listened(
    settings: Mapping[str, Any], tables: Sequence[NDArray[np.float64]] | None = None, seed: int = 1
) -> tuple[RunResult, ListeningClientApp]:
    """Run the study in this process and listen to its messages."""
    app = ListeningClientApp()
    with tempfile.TemporaryDirectory(prefix="trellis-") as folder:
        data = None
        if tables is not None:
            # From files: graphs of synthetic clients are scored every round, which takes its time.
            data = Path(folder) / "data"
            data.mkdir()
            for client, values in enumerate(tables):
                np.savez(data / f"client-{client + 1}.npz", X=values)
            settings = JointPrecisionConfig.as_defaults(settings)
        config = make_run_config(STUDY, settings, data=data, seed=seed)
        config["out"] = str(Path(folder) / "out")
        count = int(config[f"{STUDY}.clients"])
        nodes = [
            {"partition-id": i, "num-partitions": count, "simulation": True} for i in range(count)
        ]
        run_local(server_app, app, nodes, config)
        return RunResult.load(Path(folder) / "out"), app


def recovered(
    settings: Mapping[str, Any], seed: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a client's S (p, p) as the server recovers it from one message, and as it is."""
    _, app = listened(settings, seed=seed)
    if app.heard is None:
        raise RuntimeError("no client took a step")
    partition, asked, answered = app.heard
    config = JointPrecisionConfig.from_settings(dict(settings))
    order = read_step_order(asked, config.variables, config.wire)
    omega = read_step(answered, order.blocks, config.wire).omega
    unpack = order.blocks.unpack
    theirs = recover_correlation(unpack(omega), unpack(order.point), order.ratio)
    own = correlation(table_of(config, seed, partition).values, config.correlation)
    return theirs, to_positive_semidefinite(own)[0]


def recovery_error(settings: Mapping[str, Any], seed: int = 1) -> float:
    """Return the largest error of a client's S as the server recovers it from one message."""
    theirs, own = recovered(settings, seed)
    return float(np.max(np.abs(theirs - own)))
