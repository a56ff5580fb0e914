"""A noisy sum on real SuperNodes: signed keys, ledgers, graphs that stay where they are made."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trellis.apps.common.results import RunResult
from trellis.apps.common.runner import app_folder, make_run_config
from trellis.privacy.device import log
from trellis.sim.deployment import Deployment

pytestmark = [pytest.mark.flower, pytest.mark.timeout(900)]

CLIENTS = 3


def signed(tmp_path) -> dict[int, dict[str, str]]:
    """Return every device's key and the table of all of them."""
    lines, keys = [], {}
    for i in range(CLIENTS):
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (tmp_path / f"key-{i}").write_bytes(pem)
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        lines.append(f"ward-{i} {public.decode()}")
        keys[i] = {
            "signing-key": str(tmp_path / f"key-{i}"),
            "trusted-keys": str(tmp_path / "table"),
        }
    (tmp_path / "table").write_text("\n".join(lines) + "\n")
    return keys


def test_devices_learn_together_and_keep_their_own(tmp_path):
    keys, rng, nodes = signed(tmp_path), np.random.default_rng(0), []
    for i in range(CLIENTS):
        rows = "\n".join(",".join(map(str, row)) for row in rng.normal(size=(40, 6)))
        (tmp_path / f"ward-{i}.csv").write_text(f"a,b,c,d,e,f\n{rows}\n")
        nodes.append(
            {
                "data-path": str(tmp_path / f"ward-{i}.csv"),
                "state-path": str(tmp_path / f"state-{i}"),
                "max-epsilon": 1.0,
                **keys[i],
            }
        )
    settings = {"clients": CLIENTS, "privacy": "dp", "epsilon": 1.0}
    out = tmp_path / "out"
    run_config = make_run_config("consensus-graph", settings) | {"out": str(out)}
    with Deployment(nodes) as deployment:
        deployment.run(app_folder("consensus-graph"), run_config, timeout=600).check()
    result = RunResult.load(out)
    assert result.status == "completed"
    assert 0.9 < result.ledger["epsilon"] <= 1.0 + 1e-6
    # The server has the consensus, and no client's own graph.
    assert result.arrays["consensus"].shape == (15,)
    assert "weights" not in result.arrays or not np.isfinite(result.arrays["weights"]).any()
    for i in range(CLIENTS):
        state = tmp_path / f"state-{i}"
        entries = json.loads((state / "ledger.json").read_text())["entries"].values()
        (event,) = (entry["event"] for entry in entries)
        assert event["mechanism"] == "summed-gaussian"
        assert event["noisers"] == CLIENTS  # by signed keys, not by the server's word
        (folder,) = (state / "results").iterdir()
        with np.load(folder / "result.npz") as kept:
            assert kept["weights"].shape == (15,)
        assert {"graph.graphml", "edges.csv", "result.html"} <= {p.name for p in folder.iterdir()}
        said = [line["what"] for line in log.read(state)]
        assert said == ["enrolled", "release", "result"]
