"""A neighbour that knows the run's seed must not take the noise off what servers tell it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.crashing import crashing_after
from trellis import apps
from trellis.apps.command.closing import _privacy as closing_words
from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import make_run_config
from trellis.apps.common.seeds import generator
from trellis.apps.pages.privacy import spent
from trellis.privacy.mechanisms.laplace import laplace_noise
from trellis.sim.grid import run_local
from trellis.strategies.core.enrolment import StudyError
from trellis.strategies.server_graph.exchange import HybridServer, IidServer

Array = NDArray[np.float64]
Mail = dict[tuple[int, int, int], tuple[Array, Array]]

SIGMA, SERVERS = 50.0, 4


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Mail:
    """Return what servers had and sent, by (server, round, receiver)."""
    seen: Mail = {}
    for kind in (HybridServer, IidServer):
        honest = kind.messages

        def watched(
            self: Any, server_round: int, psi: Array, weights: Array, honest: Any = honest
        ) -> Any:
            sent = honest(self, server_round, psi, weights)
            for p, y in sent.items():
                seen[self.index, server_round, p] = psi.copy(), y.copy()
            return sent

        monkeypatch.setattr(kind, "messages", watched)
    return seen


def federation(folder: Path, **node: Any) -> list[dict[str, Any]]:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    nodes = []
    for k in range(3 * SERVERS):
        X = rng.standard_normal((30, 4))
        np.savez(folder / f"c{k:02d}.npz", X=X, y=np.sign(X[:, 0]))
        nodes.append(
            {
                "data-path": str(folder / f"c{k:02d}.npz"),
                "state-path": str(folder / f"s{k}"),
                "partition-id": k,
                "server": k // 3,
                **node,
            }
        )
    return nodes


def run(nodes: list[dict[str, Any]], out: Path, rounds: int = 3, **more: Any) -> dict[str, Any]:
    settings = {
        "privacy": "paper",
        "method": "hybrid",
        "clip": 0.1,
        "sigma": SIGMA,
        "clients": len(nodes),
        "servers": SERVERS,
        "topology": "ring",
        "batch": 0,
        "rounds": rounds,
    }
    how = {key: more.pop(key, False) for key in ("resume", "force")}
    config = make_run_config("server-graph", settings | more)
    config |= {"out": str(out), "report": False, **how}
    run_local(apps.server_app, apps.client_app, nodes, config)
    record: dict[str, Any] = json.loads((out / "run.json").read_text())
    return record


def recovered(mail: Mail, seed: int) -> float:
    """Return how far psi is from what a neighbour finds by the seed, at most."""
    worst = 0.0
    for (m, server_round, _), (psi, y) in mail.items():
        source = generator(seed, "server noise", m, server_round)
        guess = y - laplace_noise(source, psi.size, SIGMA / np.sqrt(2.0))
        worst = max(worst, float(np.abs(guess - psi).max()))
    return worst


def test_the_seed_takes_no_noise_off_on_devices(mail: Mail, tmp_path: Path) -> None:
    record = run(federation(tmp_path / "data"), tmp_path / "out")
    assert len(mail) == 3 * SERVERS * 2
    assert recovered(mail, record["seed"]) > SIGMA
    mail.clear()
    record = run(federation(tmp_path / "same", simulation=True), tmp_path / "simulated")
    assert recovered(mail, record["seed"]) < 1e-9  # the attack itself works


def test_two_runs_with_one_seed_differ_on_devices_and_not_in_simulation(
    mail: Mail, tmp_path: Path
) -> None:
    sent = []
    for place, node in enumerate([{}, {}, {"simulation": True}, {"simulation": True}]):
        run(federation(tmp_path / f"data{place}", **node), tmp_path / f"out{place}")
        sent.append({key: y for key, (_, y) in mail.items()})
        mail.clear()
    assert all(np.abs(sent[0][key] - sent[1][key]).max() > 0.1 for key in sent[0])
    # sums are opened from masks, so the last bits of psi may differ
    assert all(np.allclose(sent[2][key], sent[3][key], atol=1e-6) for key in sent[2])


def test_one_device_among_simulated_clients_is_enough(mail: Mail, tmp_path: Path) -> None:
    nodes = federation(tmp_path / "data", simulation=True)
    del nodes[5]["simulation"]
    record = run(nodes, tmp_path / "out")
    assert recovered(mail, record["seed"]) > SIGMA
    assert "epsilon" not in record["ledger"]


def test_a_resumed_run_repeats_the_noise_it_had(mail: Mail, tmp_path: Path) -> None:
    out, nodes = tmp_path / "out", federation(tmp_path / "data")
    with crashing_after(2):
        run(nodes, out, rounds=4)
    kept = (out / "checkpoint" / "state.npz").read_bytes()
    run(nodes, out, rounds=4, resume=True)
    first = {key: y - psi for key, (psi, y) in mail.items()}
    (out / "checkpoint" / "state.npz").write_bytes(kept)  # as if it had crashed in round 4
    mail.clear()
    run(nodes, out, rounds=4, resume=True)
    again = {key: y - psi for key, (psi, y) in mail.items()}
    assert {key[1] for key in again} == {3, 4}
    for key, noise in again.items():
        np.testing.assert_allclose(noise, first[key], atol=1e-9)


def test_a_new_run_in_the_same_folder_draws_anew(mail: Mail, tmp_path: Path) -> None:
    out, nodes = tmp_path / "out", federation(tmp_path / "data")
    secrets = []
    for force in (False, True):
        run(nodes, out, rounds=1, force=force)
        secrets.append((out / "checkpoint" / "server-noise" / "secret").read_bytes())
    assert secrets[0] != secrets[1]


def test_the_secret_is_the_owners_alone_and_in_no_other_file(mail: Mail, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(federation(tmp_path / "data"), out, rounds=1)
    path = out / "checkpoint" / "server-noise" / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_bytes()
    for other in out.rglob("*"):
        if other.is_file() and other != path:
            content = other.read_bytes()
            assert secret not in content
            assert secret.hex().encode() not in content


def test_a_resumed_run_without_its_secret_is_refused(mail: Mail, tmp_path: Path) -> None:
    out, nodes = tmp_path / "out", federation(tmp_path / "data")
    with crashing_after(1):
        run(nodes, out, rounds=2)
    (out / "checkpoint" / "server-noise" / "secret").unlink()
    with pytest.raises(StudyError, match="secret of the servers' noise is gone"):
        run(nodes, out, rounds=2, resume=True)


def test_no_epsilon_is_told_where_one_process_plays_all_servers(tmp_path: Path) -> None:
    record = run(federation(tmp_path / "data"), tmp_path / "out")
    assert "epsilon" not in record["ledger"]
    assert not [key for key in record["headline"] if "epsilon" in key]
    assert all("epsilon" not in server for server in record["ledger"]["clients"])
    assert "epsilon" not in (tmp_path / "out" / "metrics.csv").read_text()
    assert record["ledger"]["claim"].startswith("None")
    assert any("No epsilon is told" in note for note in record["notes"])


def test_in_simulation_epsilon_says_that_it_is_simulated_and_what_the_result_undoes(
    mail: Mail, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    record = run(federation(tmp_path / "data", simulation=True), out)
    assert record["ledger"]["epsilon"] > 0.0
    assert record["ledger"]["simulated"] is True
    assert record["ledger"]["claim"].startswith("Simulated")
    assert "result.npz" in record["ledger"]["not_covered"]
    assert any("result.npz" in note for note in record["notes"])
    assert closing_words(record["ledger"])[-1] == "(simulated)"
    assert spent(RunResult.load(out)).endswith("(the paper's claim, simulated)")
    # What it says is true: result.npz and the other servers' mail give psi.
    kept = np.load(out / "result.npz")
    A, w = kept["combination"], kept["models"]
    psi = {m: found for (m, i, _), (found, _) in mail.items() if i == 3}
    y = {m: sent for (m, i, _), (_, sent) in mail.items() if i == 3}
    for m in range(SERVERS):
        others = sum(A[k, m] * y[k] for k in range(SERVERS) if k != m)
        np.testing.assert_allclose(w[m] + (1.0 - A[m, m]) * y[m] - others, psi[m], atol=1e-6)
