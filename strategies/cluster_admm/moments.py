"""Private regression per cluster, from noisy sums of clients' moments: the method ``moments``.

No ADMM runs here. Every exchange is one sum over all clients of all servers. Clients put the
moments of their samples into the slots of their clusters, so that a sum has the noise of one
mechanism per cluster; one sum for each pair of server and cluster would have it S times, and pairs
with fewer than three clients could have none. From the sums so far `Releases` makes the models, the
same for all servers: the servers' graph has nothing left to do, and neither have rho, tau and
ridge, whose places the evidence takes.

The strategy sees nothing but sums, and does not know whether they are masked or noisy: run it on
`trellis.strategies.secure_grid.SecureGrid` for secure aggregation with distributed noise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from trellis.strategies.core import wire
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.grid_wrapper import GridWrapper
from trellis.strategies.node_strategy import NodeStrategy
from trellis.strategies.places import ask_places

from .releases import Bounds, Releases

Array = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]

log = logging.getLogger("trellis.strategy")

UNITS, SCALES, MOMENTS, SCORE = "units", "scales", "moments", "score"


class ClusterMoments(NodeStrategy):
    """One model per cluster, from sums of moments.

    Start it with ``initial_arrays`` = ``models`` (Q, d), zeros; ``Result.arrays`` has ``models``
    (Q, d) and ``pulls`` (Q,), how strongly a device should lean on them (`pulls`).

    Sent with ``query.place`` before the first round: see `trellis.strategies.places`.
    Sent with ``train``, to all nodes alike:
        arrays   ``models`` (Q, d), those of the sums so far
        config   ``sum``, what to add up: ``units``, ``scales``, ``moments`` or ``score``;
                 ``server-round``; with ``moments`` the bounds ``length`` B and ``width`` Y, the
                 ``weight`` b and whether ``square`` is asked for (``whole``); with ``score``
                 ``width``; and ``train_config``
    Expected back, added up over all replies (one, if a `SecureGrid` did so):
        arrays   the terms of the sum: with ``moments`` those of `releases`
        metrics  ``num-examples``, how many samples are in the terms; ``noise``, the standard
                 deviation of the noise in an entry of the sum (0 if absent)
        sum      (from a `SecureGrid`) who is in the sum, and with how many examples

    A sum that has to be made again would cost as much privacy as another, so nodes that fail once
    are asked no more. If a sum after the first fails, the models are those of the sums before it
    (`cut_short`); an exchange that fails is no reply at all, see `LastingGrid`.

    Parameters
    ----------
    clusters : Q
    bounds : of samples
    exchanges : T, sums that teach
    scales : from the sum of counts and its noise, B and Y (None: hidden by noise); None if the
        bounds are given
    score : from the sum over so many held-out samples and its noise, the score and its error;
        None if no samples are held out
    units : called with the sum that shows the units of features and its noise; None asks for none
    shapes : of the sums ``units``, ``scales`` and ``score``, by name of the sum
    options : of `NodeStrategy`
    """

    def __init__(
        self,
        clusters: int,
        bounds: Bounds,
        exchanges: int,
        *,
        scales: Callable[[Array, float], tuple[float | None, float | None]] | None = None,
        score: Callable[[Array, int, float], tuple[float, float]] | None = None,
        units: Callable[[Array, float], None] | None = None,
        shapes: Mapping[str, Shapes] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.clusters, self.given = clusters, bounds
        self.scales, self.score, self.units = scales, score, units
        self.shapes = dict(shapes or {})
        first = [name for name, asked in ((UNITS, units), (SCALES, scales)) if asked]
        self.sums = [*first, *[MOMENTS] * exchanges, *([SCORE] if score else [])]
        self.made = 0  # exchanges so far
        self.cut_short = False
        self.groups: dict[int, int] = {}  # cluster by node
        self.lasting: set[int] | None = None  # nodes that have not failed; None before the first
        self.scored = np.full(2, np.nan)
        self.taught = 0  # samples in the last sum that taught
        self.begin(0, bounds)

    def begin(self, size: int, bounds: Bounds) -> ArrayRecord:
        """Start at zero with models of ``size`` parameters; return them."""
        self.size, self.bounds = size, bounds
        self.releases = Releases(self.clusters, size, bounds)
        self._taken: list[tuple[dict[str, Array], Array, float]] = []
        return wire.record({"models": self.releases.models})

    @property
    def done(self) -> bool:
        """Whether all sums are made, or one of them failed."""
        return self.cut_short or self.made >= len(self.sums)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask everyone who has not failed for its terms of the next sum."""
        if self.done:
            return
        if not self.size:
            self.begin(arrays["models"].shape[1], self.bounds)
        there = sorted(grid.get_node_ids())
        if new := [node for node in there if node not in self.groups]:
            places = ask_places(grid, new, {"cluster": self.clusters})
            self.groups |= {node: place["cluster"] for node, place in places.items()}
        self.asked = [node for node in there if self.lasting is None or node in self.lasting]
        told = {**config, **self._question(), "server-round": server_round}
        content = RecordDict(
            {
                "arrays": wire.record({"models": self.releases.models}),
                "config": ConfigRecord(told),
            }
        )
        for node in self.asked:
            yield Message(RecordDict(dict(content)), node, "train", group_id=str(server_round))

    def _question(self) -> dict[str, Any]:
        wanted, releases = self.sums[self.made], self.releases
        if wanted == SCORE:
            return {"sum": wanted, "width": self.bounds.width}
        if wanted != MOMENTS:
            return {"sum": wanted}
        return {
            "sum": wanted,
            **{"length": self.bounds.length, "width": releases.width, "weight": releases.weight},
            "whole": releases.taken == 0,
        }

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the terms of the next sum."""
        wanted = self.sums[self.made]
        if wanted != MOMENTS:
            return dict(self.shapes[wanted])
        found: dict[str, tuple[int, ...]] = {
            "cross": (self.clusters + 1, self.size),
            "power": (1,),
        }
        if self.releases.taken == 0:
            found["square"] = (self.size * (self.size + 1) // 2,)
        return found

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take a sum: find the models anew, or score them."""
        layout = self.layout()
        good = self.usable(
            self._with_sources(replies), lambda content: _read_terms(content, layout)
        )
        if not good and not self.releases.taken:
            return None, None
        if not good:
            self.cut_short = True
            return self.public(), MetricRecord({"change": 0.0})
        terms = [terms for terms, _, _ in good.values()]
        total = {name: np.sum([each[name] for each in terms], axis=0) for name in layout}
        counts = {node: n for _, count, _ in good.values() for node, n in count.items()}
        noise = float(np.sqrt(sum(noise**2 for _, _, noise in good.values())))
        self.lasting = set(counts)
        metrics = self.take(total, counts, noise)
        return self.public(), MetricRecord(dict(metrics))

    def _with_sources(self, replies: Iterable[Message]) -> Iterable[Message]:
        """Yield replies; those of single nodes say who is in them, as those of sums do."""
        for reply in replies:
            if not reply.has_error() and "sum" not in reply.content:
                metrics = reply.content.get("metrics")
                count = metrics.get("num-examples", 0) if isinstance(metrics, MetricRecord) else 0
                who = {"nodes": [reply.metadata.src_node_id], "num-examples": [float(count)]}  # type: ignore[arg-type]
                reply.content["sum"] = ConfigRecord(dict(who))  # type: ignore[arg-type]
            yield reply

    def take(
        self, total: dict[str, Array], counts: Mapping[int, float], noise: float
    ) -> dict[str, float]:
        """Take the next sum, over ``counts`` samples by node; return metrics."""
        wanted = self.sums[self.made]
        self.made += 1
        if wanted == UNITS:
            assert self.units is not None
            (places,) = total.values()
            self.units(places, noise)
            return {"change": 1.0}
        if wanted == SCALES:
            assert self.scales is not None
            length, width = self.scales(total["scales"], noise)
            if self.given.logistic:
                width = self.given.width
            given = self.given
            found = replace(given, length=length or given.length, width=width or given.width)
            self.begin(self.size, found)
            return {"change": 1.0}
        held = int(sum(counts.values()))
        if wanted == SCORE:
            if self.score is None or held < 1:
                return {"change": 0.0}
            score, error = self.score(total["score"], held, noise)
            self.scored[:] = score, error
            return {"change": 0.0, "score": score, "score-error": error}
        by_cluster = np.zeros(self.clusters)
        for node in sorted(counts):
            by_cluster[self.groups[node]] += counts[node]
        before = self.releases.models
        self._enter(total, by_cluster, noise)
        now = self.releases.models
        length = max(float(np.linalg.norm(now)), float(np.linalg.norm(before)), 1e-12)
        return {"change": float(np.linalg.norm(now - before)) / length, "noise": noise}

    def _enter(self, total: dict[str, Array], counts: Array, sigma: float) -> None:
        self.releases.take(total, counts, sigma)
        self._taken.append((total, counts, sigma))
        self.taught = int(counts.sum())

    # --- what devices make of it ---------------------------------------------------------------

    @property
    def pulls(self) -> Array:
        """How strongly a device should lean on the models (Q,), by how sure the sums are of them.

        The variance of a sample's error over that of a coefficient; for a log likelihood half of
        that. Zero, which is learning alone, if nothing but noise was seen.
        """
        found, releases = self.releases.found, self.releases
        if found is None or found.common == 0.0:
            return np.zeros(self.clusters)
        variance = np.maximum(found.doubt * releases.unit**2 / self.size, 1e-300)
        if self.bounds.logistic:
            return np.asarray(0.5 / variance)
        return np.asarray(found.unexplained * self.bounds.width**2 / variance)

    def public(self) -> ArrayRecord:
        """Return the models, and how strongly to lean on them."""
        return wire.record({"models": self.releases.models, "pulls": self.pulls})

    # --- checkpoints ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return every sum that came; models are made from them anew."""
        nodes = sorted(self.groups)
        found: dict[str, NDArray[Any]] = {
            "nodes": np.array(nodes, dtype=np.uint64),
            "groups": np.array([self.groups[node] for node in nodes], dtype=np.int64),
            "lasting": np.array(sorted(self.lasting or ()), dtype=np.uint64),
            "made": np.array([self.made, int(self.cut_short), self.size]),
            "scored": self.scored.copy(),
            "bounds": np.array([self.bounds.length, self.bounds.width]),
        }
        for number, (total, counts, sigma) in enumerate(self._taken):
            found |= {f"{number}.{name}": array for name, array in total.items()}
            found[f"{number}.counts"], found[f"{number}.sigma"] = counts, np.array([sigma])
        return found

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore `state_dict`."""
        nodes = [int(node) for node in state["nodes"]]
        self.groups = dict(zip(nodes, state["groups"].tolist(), strict=True))
        self.made, cut_short, size = state["made"].tolist()
        self.cut_short = bool(cut_short)
        self.lasting = {int(node) for node in state["lasting"]} if self.made else None
        length, width = state["bounds"].tolist()
        self.begin(size, replace(self.given, length=length, width=width))
        while f"{len(self._taken)}.counts" in state:
            number = f"{len(self._taken)}."
            kept = {key[len(number) :]: a for key, a in state.items() if key.startswith(number)}
            counts, sigma = kept.pop("counts"), float(kept.pop("sigma")[0])
            self._enter(kept, counts, sigma)
        self.scored = state["scored"].copy()


class LastingGrid(GridWrapper):
    """A Grid around one that may fail as a whole: an exchange after the first is no replies then.

    Parameters
    ----------
    grid : a `SecureGrid`
    strategy : what it carries sums for; a failure before its first models ends the run
    """

    def __init__(self, grid: Grid, strategy: ClusterMoments) -> None:
        super().__init__(grid)
        self.strategy = strategy

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return the replies, none if there is no sum."""
        try:
            return self.grid.send_and_receive(messages, timeout=timeout)
        except StudyError as error:
            if not self.strategy.releases.taken:
                raise
            log.warning("the models are of the sums before this one, which failed: %s", error)
            return []


def _read_terms(
    content: RecordDict, layout: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Array], dict[int, float], float]:
    """Return the terms of a reply, how many examples of which node are in them, and their noise."""
    found = wire.arrays(content["arrays"])
    if set(found) != set(layout):
        raise wire.BadReply(f"holds {sorted(found)}, not {sorted(layout)}")
    for name, array in found.items():
        wire.check_reals(array, name, layout[name])
    who: Any = content["sum"]
    counts = {int(k): float(n) for k, n in zip(who["nodes"], who["num-examples"], strict=True)}
    metrics = content.get("metrics")
    noise = float(metrics.get("noise", 0.0)) if isinstance(metrics, MetricRecord) else 0.0  # type: ignore[arg-type]
    if not all(0.0 <= value < 2.0**53 for value in (noise, *counts.values())):
        raise wire.BadReply(
            f"numbers out of range: noise {noise:g}, samples {list(counts.values())}"
        )
    return found, counts, noise
