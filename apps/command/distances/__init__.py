"""``trellis distances``: a collection of graphs, from its files to the matrix of distances.

`following` shows how far it is.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..saying import say

if TYPE_CHECKING:
    from rich.console import Console


def add(commands: Any) -> None:
    """Describe the subcommand."""
    command = commands.add_parser(
        "distances", help="Gromov-Wasserstein distances between all graphs of a collection"
    )
    command.add_argument(
        "data", type=Path, help="a folder in the format of TUDataset, or an npz file of graphs"
    )
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="keep them here; again, to go on"
    )
    command.add_argument(
        "--metric",
        choices=("gw", "fgw", "wasserstein"),
        default="gw",
        help="gw compares structure, wasserstein nodes' features, fgw both (default gw)",
    )
    command.add_argument(
        "--nodes",
        choices=("paths", "features"),
        default="paths",
        help="distances between a graph's nodes: lengths of shortest paths, or of their features",
    )
    command.add_argument("--alpha", type=float, default=0.5, help="weight of structure in fgw")
    command.add_argument("--restarts", type=int, default=0, help="more starts of every pair")
    command.add_argument("--seed", type=int, default=0, help="of the restarts")
    command.add_argument(
        "--neighbours",
        type=int,
        default=0,
        metavar="K",
        help="solve only what the K nearest graphs of each need; 0 (the default) solves all pairs",
    )
    command.add_argument("--workers", type=int, help="processes; by default all cores")
    command.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="on the Ray cluster there, or without an address on one of this machine",
    )
    command.set_defaults(act=act)


def act(options: argparse.Namespace, console: Console) -> int:
    """Solve, keep and say what came of it."""
    from trellis.apps.gromov_wasserstein.collection import FILE, Question, keep, read_collection

    from .following import follow

    question = Question(
        metric=options.metric,
        nodes=options.nodes,
        alpha=options.alpha,
        restarts=options.restarts,
        seed=options.seed,
        neighbours=options.neighbours,
    )
    graphs = read_collection(options.data)
    sizes = [graph.nodes for graph in graphs]
    nodes = f"{min(sizes)} to {max(sizes)} nodes"
    pairs = len(graphs) * (len(graphs) - 1) // 2
    say(console, f"{options.data}: {len(graphs):,} graphs of {nodes}, {pairs:,} pairs")
    try:
        with _on(options.ray, options.workers), follow(console, sizes, question) as told:
            found = keep(
                options.data,
                question,
                options.out,
                workers=options.workers,
                on_progress=told,
                graphs=graphs,
            )
    except KeyboardInterrupt:
        say(console, "pairs that are solved are kept: the same command goes on from there")
        raise
    text = f"{options.out / FILE}: {len(graphs):,} x {len(graphs):,} distances"
    if question.neighbours:
        text += f", of which {100.0 * found.share:.1f} % were needed and solved"
    say(console, f"{text}; {found.seconds:,.0f} s")
    return 0


@contextmanager
def _on(address: str | None, workers: int | None) -> Iterator[None]:
    """Let joblib use a Ray cluster, where one is named."""
    if address is None:
        yield
        return
    from trellis.install import pip_install

    try:
        import joblib

        ray: Any = import_module("ray")
        backend: Any = import_module("ray.util.joblib")
    except ImportError as error:
        raise ImportError(f"--ray needs Ray and joblib: {pip_install('laptop')}") from error
    here = address == "local"
    options = {"include_dashboard": False} if here else {"address": address}
    ray.init(**options, log_to_driver=False, logging_level=logging.WARNING)
    try:
        backend.register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=workers or -1):
            yield
    finally:
        ray.shutdown()
