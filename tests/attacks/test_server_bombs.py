"""A server of the graph that sends another few bytes which unpack to many.

Adversary: one of the servers, whose messages are sealed and signed as they should be.
"""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from trellis.privacy.secagg.errors import BadMessage
from trellis.strategies.network.letters import Written

NUMBERS = 10**7  # 80 MB


def header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def archive(method: int, content: bytes, times: int = 1) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        made.writestr("notes.npy", _saved(np.frombuffer(b"{}", np.uint8)))
        made.writestr("model.npy", content)
        made.filelist.extend([made.getinfo("model.npy")] * (times - 1))
    return buffer.getvalue()


def _saved(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


BOMBS = {
    "deflated zeros": lambda: archive(
        zipfile.ZIP_DEFLATED, header((NUMBERS,)) + bytes(8 * NUMBERS)
    ),
    "zeros by bzip2": lambda: archive(zipfile.ZIP_BZIP2, header((NUMBERS,)) + bytes(8 * NUMBERS)),
    "zeros by lzma": lambda: archive(zipfile.ZIP_LZMA, header((NUMBERS,)) + bytes(8 * NUMBERS)),
    "a header of more than there is": lambda: archive(zipfile.ZIP_STORED, header((NUMBERS,))),
    "one array, listed 100 times": lambda: archive(
        zipfile.ZIP_STORED, _saved(np.zeros(100_000)), times=100
    ),
}


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_what_declares_more_than_it_is_is_not_unpacked(bomb):
    data = BOMBS[bomb]()
    assert len(data) < 2_000_000
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage, match="a letter that cannot be read"):
            Written.decode(1, data)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_what_a_server_sends_honestly_is_read():
    arrays = {"model": np.arange(6.0).reshape(2, 3), "turned": np.asfortranarray(np.ones((3, 2)))}
    found = Written.decode(1, Written(1, arrays, {"last": True}).encode())
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].flags.writeable
    assert found.notes == {"last": True}
