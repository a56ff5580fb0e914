"""Where the time of a round goes (Fig. 5), and a run whose messages are listened to.

Runs are timed one after another, with one BLAS thread; on a busy machine the numbers are too high.
In process, clients compute in turn, so a round's seconds are

    all clients' steps (12)-(14) + the server's (15)-(18) + the rest,

the rest being Flower's records, copies and the engine. That is what communication costs here, where
no network is; beside it stands what the round's bytes would take over the paper's 5 Mbit/s.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from apps.common.results import RunResult
from apps.common.runner import make_run_config
from apps.common.seeds import generator
from apps.dispatch import StudyClientApp, server_app
from apps.experiments.sweep import save_plot, write_rows
from apps.pages.plots import curves
from sim.grid import run_local
from strategies.joint_precision.messages import read_step, read_step_order

from ..config import JointPrecisionConfig
from ..correlation import correlation, to_positive_semidefinite
from ..data import bent, block_matrices, edge_values, gaussian_samples, power_law_graph
from ..data import synthetic_table as table_of
from ..problem import recover_correlation

STUDY = JointPrecisionConfig.study
BITS_A_SECOND = 5e6
CLIENTS = 3
SUBNETWORKS = 10

# Fig 5: d at n = 150; n / d at d = 32; the share of the edges that is kept, at the largest d.
DIMENSIONS = (16, 32, 64, 128)
SAMPLE_RATIOS = (1, 2, 4, 8)
KEPT_EDGES = (0.1, 0.25, 0.5, 1.0)
ROUNDS = 8


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
    """The clients' app, and what the server may write down: every order and every reply."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[int, float] = {}
        self.heard: tuple[int, RecordDict, RecordDict] | None = None

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer one message, and keep it if it is a step."""
        reply = super().__call__(message, context)
        order: Mapping[str, Any] = message.content.config_records.get("order", {})
        if order.get("task") == "step" and reply.has_content():
            number, spent = int(order["round"]), reply.content.metric_records["metrics"]["seconds"]
            self.seconds[number] = self.seconds.get(number, 0.0) + float(spent)  # type: ignore[arg-type]
            partition = int(context.node_config["partition-id"])
            self.heard = (partition, message.content, reply.content)
        return reply


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


def recovery_error(settings: Mapping[str, Any], seed: int = 1) -> float:
    """Return the largest error of a client's S as the server recovers it from one message."""
    _, app = listened(settings, seed=seed)
    if app.heard is None:
        raise RuntimeError("no client took a step")
    partition, asked, answered = app.heard
    config = JointPrecisionConfig.from_settings(dict(settings))
    order = read_step_order(asked, config.variables)
    omega = read_step(answered, order.blocks, config.wire).omega
    unpack = order.blocks.unpack
    recovered = recover_correlation(unpack(omega), unpack(order.point), order.ratio)
    own = correlation(table_of(config, seed, partition).values, config.correlation)
    return float(np.max(np.abs(recovered - to_positive_semidefinite(own)[0])))


def figure_5(out: Path, console: Console) -> None:
    """Write the seconds of clients, server and communication, by round, over d, n and density."""
    console.print(
        "The paper's third sweep varies s, which it relates to the exponent of a power law by a "
        "rule it does not give: here a share of the edges is kept instead, which is the density."
    )
    largest = DIMENSIONS[-1]
    sweeps: dict[str, list[tuple[float, int, int, float]]] = {
        "d": [(d, d, 150, 1.0) for d in DIMENSIONS],
        "n": [(32 * ratio, 32, 32 * ratio, 1.0) for ratio in SAMPLE_RATIOS],
        "kept": [(share, largest, 150, share) for share in KEPT_EDGES],
    }
    settings = {"rounds": ROUNDS, "tolerance": 0.0, "screening": False}
    summary: list[dict[str, Any]] = []
    by_round: list[dict[str, Any]] = []
    with Progress(console=console, transient=True) as progress, quiet():
        task = progress.add_task("fig5", total=sum(map(len, sweeps.values())))
        for name, points in sweeps.items():
            for value, d, n, share in points:
                rows = _timed_rounds(settings, thinned_tables(d, n, share))
                found = [{"sweep": name, "value": value, "d": d, "n": n} | row for row in rows]
                by_round += found
                summary.append(_median(found))
                progress.advance(task)
    _print_figure_5(summary, console)
    write_rows(out / "fig5.csv", summary, console)
    write_rows(out / "fig5-rounds.csv", by_round, console)
    for name in sweeps:
        mine = [row for row in summary if row["sweep"] == name]
        lines = {part: [row[part] for row in mine] for part in (*_PARTS, "link")}
        plot = curves(
            [row["value"] for row in mine], lines, x_label=name, y_label="seconds a round",
            log_x=True, log_y=True,
        )  # fmt: skip
        save_plot(plot, out / f"fig5-{name}")
        for part in _PARTS:
            lines = {
                f"{name} = {row['value']:g}": [
                    r[part] for r in by_round if (r["sweep"], r["value"]) == (name, row["value"])
                ]
                for row in mine
            }
            plot = curves(np.arange(1, ROUNDS + 1), lines, y_label=f"{part}, seconds", log_y=True)
            save_plot(plot, out / f"fig5-{name}-{part}")


_PARTS = ("local", "server", "communication")


def thinned_tables(d: int, n: int, share: float, seed: int = 1) -> list[NDArray[np.float64]]:
    """Return samples (n, c d) of three clients with this share of a power-law graph's edges."""
    rng = generator(seed, "subnetworks")
    blocks = []
    for _ in range(SUBNETWORKS):
        graph = power_law_graph(d, rng)
        kept = np.triu(graph & (rng.random(graph.shape) < share), 1)
        blocks.append(block_matrices(edge_values(kept | kept.T, rng), "danaher")[1])
    tables = []
    for client in range(CLIENTS):
        own = np.array(blocks)
        own[len(own) - client :] = np.eye(d)  # the paper's three classes
        latent = gaussian_samples(own, n, generator(seed, "samples", client))
        tables.append(bent(latent, generator(seed, "margins", client)))
    return tables


def _timed_rounds(
    settings: Mapping[str, Any], tables: Sequence[NDArray[np.float64]]
) -> list[dict[str, float]]:
    result, app = listened(settings, tables)
    rows = []
    pairs = tables[0].shape[1] * (tables[0].shape[1] - 1) / 2
    for row in result.metrics:
        together = app.seconds[int(row["round"])]
        sent = row["bytes-up"] + row["bytes-down"]
        rows.append(
            {
                "round": row["round"],
                "local": row["slowest-client-seconds"],
                "server": row["server-seconds"],
                "communication": row["seconds"] - together - row["server-seconds"],
                "link": 8.0 * sent / BITS_A_SECOND,
                "bytes-up": row["bytes-up"],
                "bytes-down": row["bytes-down"],
                "density": row["edges"] / pairs,
            }
        )
    return rows


def _median(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median over rounds; of the density, the last round's."""
    same = {name: rows[0][name] for name in ("sweep", "value", "d", "n")}
    names = (*_PARTS, "link", "bytes-up", "bytes-down")
    middle = {name: float(np.median([row[name] for row in rows])) for name in names}
    return {**same, **middle, "density": rows[-1]["density"]}


def _print_figure_5(summary: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(
        title=f"Seconds a round, median of {ROUNDS}; p = {SUBNETWORKS} d, {CLIENTS} clients"
    )
    for column in ("", "p", "n", "slowest client", "server", "communication", "over 5 Mbit/s"):
        table.add_column(column)
    for row in summary:
        cells = [f"{row[part]:.4f}" for part in _PARTS]
        size = str(SUBNETWORKS * row["d"])
        label = f"{row['sweep']} = {row['value']:g}"
        table.add_row(label, size, str(row["n"]), *cells, f"{row['link']:.2f}")
    console.print(table)
