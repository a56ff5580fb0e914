"""Using a kept model of cluster-admm: it is linear, as those of server-graph are."""

from __future__ import annotations

from trellis.apps.server_graph.owner.predict import predict

__all__ = ["predict"]
