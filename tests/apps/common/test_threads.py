"""One BLAS thread, so that every runtime gives the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from threadpoolctl import threadpool_info, threadpool_limits

from trellis.apps import dispatch
from trellis.apps.common.threads import one_blas_thread
from trellis.sim.grid import run_local


def threads_by_library() -> dict[str, int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {
        info["filepath"]: info["num_threads"]
        for info in threadpool_info()
        if info["user_api"] == "blas"
    }


@pytest.fixture
def blas_threads() -> Iterator[Callable[[], set[int]]]:
    """Give BLAS two threads; return what counts them.

    A BLAS that a solver brought along is not counted where it keeps to the number it was loaded
    with.
    """
    with threadpool_limits(2, "blas"):
        able = {library for library, threads in threads_by_library().items() if threads == 2}
        if not able:
            pytest.skip("this BLAS has one thread only")
        yield lambda: {n for library, n in threads_by_library().items() if library in able}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_study_s_clients_and_its_server_use_one_blas_thread(
    monkeypatch, workers, blas_threads
) -> None:
    seen: list[set[int]] = []
    server, client = ServerApp(), ClientApp()

    @client.train()
    def handle(message: Message, context: Context) -> Message:
        seen.append(blas_threads())
        return Message(RecordDict(), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        seen.append(blas_threads())
        list(
            grid.send_and_receive([Message(RecordDict(), n, "train") for n in grid.get_node_ids()])
        )

    parts = {"server_app": SimpleNamespace(app=server), "client_app": SimpleNamespace(app=client)}
    monkeypatch.setattr(dispatch, "study_module", lambda study, part: parts[part])
    nodes = [{"simulation": True}, {"simulation": True}]
    config = {"study": "consensus-graph"}  # whose parts are those above
    run_local(dispatch.server_app, dispatch.client_app, nodes, config, workers=workers)
    assert seen == [{1}] * 3
    assert blas_threads() == {2}


def test_the_last_to_leave_restores_the_threads(blas_threads) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(5.0)

    def fail() -> None:
        with one_blas_thread(), one_blas_thread():
            other.start()
            assert inside.wait(5.0)
            raise ValueError("boom")

    other = threading.Thread(target=hold)
    with pytest.raises(ValueError, match="boom"):
        fail()
    assert blas_threads() == {1}
    leave.set()
    other.join(5.0)
    assert blas_threads() == {2}


def test_a_blas_that_is_first_loaded_inside_has_one_thread_there_and_all_afterwards() -> None:
    """In a process of its own: here scipy's is long loaded."""
    code = """
import os, numpy
from threadpoolctl import threadpool_info
from trellis.apps.common.threads import one_blas_thread
from trellis.privacy import numerics
def threads():
    return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
before = threads()
with one_blas_thread():
    numerics.lapack()
    print(threads())
print(threads() == before * 2, os.environ.get("OPENBLAS_NUM_THREADS"))
with one_blas_thread():
    print(threads())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
    )
    said = done.stdout.splitlines()
    if said[0] == "[1]":
        pytest.skip("numpy and scipy share one BLAS here")
    assert said == ["[1, 1]", "True 2", "[1, 1]"]
