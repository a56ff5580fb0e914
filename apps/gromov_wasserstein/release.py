"""What leaves a client of gromov-wasserstein as an embedding, and what that costs in privacy [JC].

A graph's embedding H (n, h) has rows in [0, 1]^h, from a softmax.

The method's encoder says what is sent of it: H as it is; the encoder of the article as printed
(`as_printed`); or that of `trellis.privacy.mechanisms.multibit`: m entries per row, one bit each.
With ``budget_per = "graph"`` a row has epsilon / n, so that the n rows of a graph together are
epsilon-LDP; with ``node`` every row has epsilon, so that a graph's rows together are n epsilon.

Neighbouring: a graph replaced by any other graph with as many nodes. The ledger counts what the
largest graph costs: every graph is released by itself, so the graphs of a client compose in
parallel. Releases of several rounds add up, and epsilon is divided among them.

Under ``dp`` epsilon is of the run: with training, ``training-share`` of it is for the noisy sums
of gradients (a record is a graph with both tasks: the gradient of a graph is clipped as a whole), a
tenth for a score if ``held-out`` asks for one, and the bits have what is left
(`config.bits_epsilon`). A device refuses more in one run. With ``method = "untrained"`` bits are
all that is sent.

Adversary: whoever sees sums and codes, the server included, also one that chooses the settings and
the weights. Not covered: the number of graphs and of their nodes, graphs' labels where they are
shared; a person who is in several graphs (subgraphs of one big graph overlap) is in as many
records; with other privacy than ``dp`` the updates of training. What else a device keeps to
itself under ``dp``, so that no single graph decides what it says: see `guarded`.

On a device bits come from the operating system and every release is entered in the device's ledger
before it is made. In a simulation they come from the seed and protect nobody.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trellis.apps.common.node import Node
from trellis.apps.common.seeds import generator
from trellis.apps.common.tables import DataError
from trellis.privacy.accounting.budget import DeviceLedger, Policy
from trellis.privacy.accounting.events import PrivacyEvent
from trellis.privacy.accounting.ledger import Ledger
from trellis.privacy.accounting.totals import total_epsilon
from trellis.privacy.mechanisms.laplace import UniformSource
from trellis.privacy.mechanisms.multibit import Encoded, MultiBit, encode, row_budget
from trellis.privacy.mechanisms.noise import fresh_noise

from .as_printed import encode_graph, graph_code
from .config import GromovWassersteinConfig
from .methods import METHODS

Array = NDArray[np.float64]
Codes = dict[str, Encoded]

WORRYING = 10.0


def statement(config: GromovWassersteinConfig) -> dict[str, str]:
    """Return what a run with these settings claims, for the ledger and the report."""
    return dict(METHODS.row(config.method, config.privacy).claim)


def code_of(config: GromovWassersteinConfig, h: int, nodes: int) -> MultiBit:
    """Return the encoder of a graph's rows; as printed, all of them are one row of n h.

    Raises
    ------
    ValueError
        For more bits than a row has entries, and for ``simplex`` with one bit.
    """
    if config.bits > h:
        raise ValueError(f"bits={config.bits}: the rows of an embedding have {h} entries")
    if config.encoder == "printed":
        return graph_code(config.bits_epsilon, config.bits, h, nodes)
    per: Literal["node", "graph"] = "node" if config.budget_per == "node" else "graph"
    eps_row = row_budget(config.bits_epsilon, nodes, per)
    code = MultiBit(h, eps_row, config.bits) if config.bits else MultiBit.best(h, eps_row)
    if config.estimator == "simplex" and code.m < 2:
        raise ValueError(
            f"estimator='simplex' needs two entries of a row, but epsilon={config.epsilon:g} gives "
            f"a row of a graph with {nodes} nodes {eps_row:.3g}, for which one is best; raise "
            "epsilon, set bits=2, or use estimator='double'"
        )
    return code


def half_of(config: GromovWassersteinConfig, code: MultiBit) -> MultiBit:
    """Return the code of each of the two encodings of ``estimator = "double"``."""
    if config.bits:
        return MultiBit(code.h, code.eps_row / 2.0, config.bits, code.alpha, code.beta)
    return code.halved()


def encode_rows(config: GromovWassersteinConfig, rows: Array, source: UniformSource) -> Codes:
    """Return a graph's rows (n, h) encoded: ``codes``, with ``double`` also ``second``."""
    n, h = rows.shape
    code = code_of(config, h, n)
    if config.encoder == "printed":
        return {"codes": encode_graph(rows, code, source)}
    if config.estimator == "double":
        half = half_of(config, code)
        return {"codes": encode(rows, half, source), "second": encode(rows, half, source)}
    return {"codes": encode(rows, code, source)}


def simulated_release(
    config: GromovWassersteinConfig, embeddings: Sequence[Array], draw: int, seed: int
) -> tuple[list[Array], list[Array] | None]:
    """Return what would arrive at a server, and the second encoding where there is one.

    For controls and figures, from a seed: it protects nobody. Draw t of graph i has the same
    uniforms for every embedding, so differences between embeddings are paired.
    """
    if config.encoder == "none":
        return list(embeddings), None
    sent = [
        encode_rows(config, rows, generator(seed, "control draws", graph, draw))
        for graph, rows in enumerate(embeddings)
    ]
    first = [codes["codes"].astype(np.float64) for codes in sent]
    second = [codes["second"].astype(np.float64) for codes in sent if "second" in codes]
    return first, second or None


def spent(config: GromovWassersteinConfig, sizes: Sequence[int]) -> float:
    """Return the epsilon of one release by a client with graphs of these sizes."""
    return config.bits_epsilon * (max(sizes) if config.budget_per == "node" else 1)


def run_limit(config: GromovWassersteinConfig, sizes: Sequence[int]) -> tuple[float, float]:
    """Return the (epsilon, delta) that a run may spend at a client with graphs of these sizes."""
    bits = config.releases * spent(config, sizes)
    return config.training_epsilon + config.score_epsilon + bits, config.delta


def of_a_node(
    config: GromovWassersteinConfig, ledger: Ledger, clients: Sequence[str]
) -> dict[str, float]:
    """Return what a run with ``budget_per = "node"`` spent on the row of one node, for the ledger.

    The ledger's own epsilon is of a whole graph. That of a node is of its row seen by itself, with
    the noisy sums, which are of graphs.
    """
    if config.budget_per != "node":
        return {}
    row = config.bits_epsilon
    totals = [
        total_epsilon(
            [replace(e, epsilon=row) if e.mechanism == "multi-bit" else e for e in events],
            config.delta,
        )
        for events in map(ledger.events, clients)
    ]
    return {"epsilon_node": max(totals, default=0.0)}


def release_rows(
    config: GromovWassersteinConfig,
    seed: int,
    node: Node,
    embeddings: Sequence[Array],
    server_round: int,
    policy: Policy | None = None,
) -> tuple[dict[str, NDArray[np.int8] | Array], tuple[PrivacyEvent, ...]]:
    """Return what a client sends for its graphs' embeddings, stacked, and the event it is.

    Raises
    ------
    PrivacyRefused
        Where the device's ``policy`` does not allow it; nothing is released then.
    """
    policy = policy or Policy()
    policy.permit(config.privacy)
    if config.encoder == "none":
        return {"rows": np.concatenate(embeddings)}, ()
    event = PrivacyEvent(
        name=f"embedding-{server_round}",
        what=f"encoded rows of {len(embeddings)} graphs",
        round=server_round,
        epsilon=spent(config, [len(rows) for rows in embeddings]),
        delta=0.0,
        mechanism="multi-bit",
    )
    if node.simulated:
        return _encoded(
            config, embeddings, generator(seed, "encoder", node.partition, server_round)
        ), (event,)
    # Fresh bits make every answer a release of its own, also where a round is asked for twice.
    name = f"{event.name}-{secrets.token_hex(8)}"
    event = PrivacyEvent(**{**event.as_record(), "name": name})
    if node.state_path is None:
        raise DataError(f"{node.name}: no folder for its ledger; set state-path in --node-config")
    ledger = DeviceLedger(node.state_path, policy)
    ledger.reserve(event, run_limit(config, [len(rows) for rows in embeddings]))
    found = _encoded(config, embeddings, fresh_noise())
    ledger.commit(event.name)
    return found, (event,)


def warnings(config: GromovWassersteinConfig) -> list[str]:
    """Return what a reader must know about the privacy of a run."""
    found: list[str] = []
    if config.encoder == "none":
        return found
    if config.budget_per == "node":
        found.append(
            f"epsilon={config.epsilon:g} is of one node's row; a graph of n nodes spends n times "
            "as much for its bits, which is what the ledger counts."
        )
    elif config.epsilon > WORRYING:
        found.append(
            f"epsilon={config.epsilon:g} a graph: above {WORRYING:g} it protects nobody in "
            "practice."
        )
    if config.at_home and not config.trains:
        found.append(
            "Nothing is trained: weights come from the seed, and the bits have all of epsilon. "
            "method='fedavg' trains with noise in the sums."
        )
    if config.trains and not config.sums:
        found.append(
            "epsilon covers the embeddings only: the server sees "
            + ("the mean of the" if config.secure_aggregation else "every client's")
            + " updates of training, which have no noise. privacy='dp' covers them."
        )
    return found


def _encoded(
    config: GromovWassersteinConfig, embeddings: Sequence[Array], source: UniformSource
) -> dict[str, NDArray[np.int8] | Array]:
    each = [encode_rows(config, rows, source) for rows in embeddings]
    return {name: np.concatenate([codes[name] for codes in each]) for name in each[0]}
