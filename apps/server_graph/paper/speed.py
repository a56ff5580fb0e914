"""Where the time of a run goes: Flower's records and engine, arithmetic, masks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from trellis.apps.common.runner import run as run_study
from trellis.apps.common.threads import one_blas_thread
from trellis.apps.experiments.finding import Finding
from trellis.apps.experiments.making import Making
from trellis.privacy.secagg.protocol import Member
from trellis.privacy.secagg.server import ServerRound, Session
from trellis.privacy.servers.masks import ServerMasks
from trellis.strategies.server_graph import exchange as server_exchange
from trellis.strategies.server_graph.post import Post

from .. import client_app, server_app
from ..config import ServerGraphConfig

# Timers around the functions of each piece; a piece inside another counts once, as itself. What is
# left of the rounds' time is the message API: records, copies, the in-process engine, checks.
REST = "Flower records and engine"
PIECES: dict[str, list[tuple[Any, str]]] = {
    "clients' arithmetic": [
        (client_app, name) for name in ("generator", "draw_batches", "local_steps")
    ],
    "servers' arithmetic": [(Post, "exchange"), (server_app, "deviations")],
    "masks between servers": [
        (ServerMasks, "message"),
        (ServerMasks, "meet"),
        (server_exchange, "open_sum"),
    ],
    "masks of clients": [
        *((Member, name) for name in ("enter", "meet", "begin", "mask", "agree", "unmask")),
        *((Session, name) for name in ("take_advert", "close")),
        *((ServerRound, name) for name in ("take_masked", "close_masked", "take_agreed")),
        *((ServerRound, name) for name in ("close_agreed", "question", "take_opened", "total")),
    ],
}


class Stopwatch:
    """Seconds by piece, each without the pieces inside it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PIECES, 0.0)
        self._inner: list[float] = []

    def around(self, piece: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, its time counted."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                self.seconds[piece] += took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        return timed


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time the pieces for as long as the context lasts; for one thread."""
    watch = Stopwatch()
    before = []
    try:
        for piece, places in PIECES.items():
            for owner, name in places:
                kept = vars(owner)[name]
                before.append((owner, name, kept))
                method = isinstance(kept, classmethod)
                timed = watch.around(piece, kept.__func__ if method else kept)
                setattr(owner, name, classmethod(timed) if method else timed)
        yield watch
    finally:
        for owner, name, kept in before:
            setattr(owner, name, kept)


def shares(setting: Mapping[str, Any], secure: str, rounds: int, seed: int = 1) -> dict[str, float]:
    """Return seconds by piece of a run's rounds, enrolment not counted, and ``total``."""
    settings = {**setting, "method": "masked", "secure-aggregation": secure, "rounds": rounds}
    with one_blas_thread(), stopwatch() as watch:
        result = run_study(ServerGraphConfig.study, settings, seed=seed)
    total = sum(row["seconds"] for row in result.metrics)
    rest = total - sum(watch.seconds.values())
    return {REST: rest, **watch.seconds, "total": total}


def speed(making: Making) -> list[Finding]:
    """Write rounds a second and the shares of the time, of the paper's setting with 500 clients.

    In this process, one run after the other: others would be in each other's way.
    """
    log = logging.getLogger("trellis")
    level = log.level
    log.setLevel(logging.ERROR)
    setting = {name: making[name] for name in ("clients", "servers", "sample")}
    rows: list[dict[str, Any]] = []
    try:
        shares(setting, "on", 1)  # whatever is loaded late
        for secure, rounds in (("off", making["rounds-open"]), ("on", making["rounds-masked"])):
            doing = f"speed: {rounds} rounds, secure aggregation {secure}"
            with making.console.status(doing):
                found = shares(setting, secure, rounds)
            total = found.pop("total")
            row = {
                "secure-aggregation": secure,
                "rounds": rounds,
                "rounds-a-second": rounds / total,
            }
            rows.append(row | {f"share, {piece}": s / total for piece, s in found.items()})
    finally:
        log.setLevel(level)
    making.table(rows, show="shares of the time of a run, masked between servers")
    return []
