"""Forged files of a citation graph: none may run code, follow a pointer or fill the memory.

Adversary: whoever wrote the pickles that a device's owner has downloaded. Every one is refused by
an error that names the file and says to get it elsewhere.
"""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from tests.apps.gromov_wasserstein.graph_files import planetoid
from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.planetoid import read_planetoid

ROOT = Path(__file__).parents[2]
REMEDY = "get it from a source you trust"
POINTER = struct.pack("<Q", 0x4141414141414141)
MINUS = b"J\xff\xff\xff\xff"  # -1
# One small file: a child that dies shows it by its exit code, and takes no test with it.
READ = """
import resource, sys
from pathlib import Path
from trellis.apps.common.tables import DataError
from trellis.apps.gromov_wasserstein.files.planetoid import read_planetoid
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    read_planetoid(Path(sys.argv[1]))
except DataError as error:
    print("refused:", error)
"""


def text(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def whole(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def dtype(
    code: bytes = b"f4", order: bytes = b"<", flags: int = 0, fields: bytes = b"NNN"
) -> bytes:
    head = b"cnumpy\ndtype\n" + text(code) + b"K\0K\1\x87R"
    return head + b"(K\3" + text(order) + fields + MINUS * 2 + b"K" + bytes([flags]) + b"tb"


def array(shape: tuple[int, ...], raw: bytes, kind: bytes | None = None) -> bytes:
    """Return the instructions of an array as Python 2 wrote them, whether they fit or not."""
    head = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R"
    sizes = b"(" + b"".join(map(whole, shape)) + b"t"
    return head + b"(K\1" + sizes + (kind or dtype()) + b"\x89" + text(raw) + b"tb"


def csr(shape: tuple[int, ...], data: bytes, indices: bytes, indptr: bytes) -> bytes:
    sizes = b"(" + b"".join(map(whole, shape)) + b"t"
    parts = {b"_shape": sizes, b"data": data, b"indices": indices, b"indptr": indptr}
    state = b"}(" + b"".join(text(key) + value for key, value in parts.items()) + b"u"
    return b"cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"b"


def ints(*values: int, code: str = "<i4") -> bytes:
    raw = np.array(values, dtype=code).tobytes()
    return array((len(values),), raw, dtype(code[1:].encode()))


def floats(*values: float) -> bytes:
    return array((len(values),), np.array(values, dtype="<f4").tobytes())


def program(body: bytes) -> bytes:
    return b"\x80\2" + body + b"."


ROWS = floats(*[1.0] * 504)
NONE = ints(*[0] * 504)
LINES = ints(*range(505))
OBJECTS = array((1,), POINTER, dtype(b"O8", b"|"))
# By what is wrong: the file, and its instructions.
FORGED = {
    "a list of forged pointers": ("allx", b"c__builtin__\nlist\n" + OBJECTS + b"\x85R"),
    "an array of forged pointers": ("allx", array((1, 1), POINTER, dtype(b"O8", b"|"))),
    "pointers as labels": ("ally", array((504, 2), POINTER * 1008, dtype(b"O8", b"|"))),
    "pointers as neighbours": ("graph", b"}K\0" + OBJECTS + b"s"),
    "pointers as papers": ("graph", OBJECTS),
    "pointers in a sparse matrix": ("allx", csr((504, 3), OBJECTS, NONE, LINES)),
    "pointers in the defaultdict": (
        "graph",
        b"ccollections\ndefaultdict\nc__builtin__\nlist\n" + OBJECTS + b"\x86R",
    ),
    "fields of objects": (
        "ally",
        array((504, 2), POINTER * 1008, dtype(b"V8", b"|", 0, b"N(U\1at}U\1a" + dtype() + b"s")),
    ),
    "fewer bytes than the shape": ("ally", array((504, 2), bytes(8), dtype(b"i4"))),
    "more bytes than the shape": ("ally", array((504, 2), bytes(8064), dtype(b"i4"))),
    "a shape below zero": ("ally", array((-504, -2), bytes(4032), dtype(b"i4"))),
    "a shape of 2^62": ("ally", array((2**62, 4), b"", dtype(b"i4"))),
    "a state set twice": ("ally", array((1, 1), bytes(4)) + b"(K\1K\1\x85NU\0tb"),
    "an index beyond the row": ("allx", csr((504, 3), ROWS, ints(*[3] * 504), LINES)),
    "an index below zero": ("allx", csr((504, 3), ROWS, ints(*[-1] * 504), LINES)),
    "an index of 2^62": ("allx", csr((504, 3), ROWS, ints(*[2**62] * 504, code="<i8"), LINES)),
    "rows beyond the data": ("allx", csr((504, 3), ROWS, NONE, ints(*range(2, 507)))),
    "rows that go back": ("allx", csr((504, 3), ROWS, NONE, ints(0, *range(504, 0, -1)))),
    "rows below zero": ("allx", csr((504, 3), ROWS, NONE, ints(-9, *range(504)))),
    "fewer rows than the shape": ("allx", csr((10**6, 3), ROWS, NONE, LINES)),
    "indices that are floats": ("allx", csr((504, 3), ROWS, ROWS, LINES)),
    "parts of two lengths": ("allx", csr((504, 3), floats(1.0), NONE, LINES)),
    "a dense matrix of terabytes": ("allx", csr((504, 2**40), ROWS, NONE, LINES)),
    "no parts": ("allx", b"cscipy.sparse.csr\ncsr_matrix\n)\x81}b"),
    "code by an old instruction": ("allx", b"(S'touch owned'\nios\nsystem\n"),
    "code by an object": ("allx", b"(cos\nsystem\nS'touch owned'\no"),
    "an extension": ("allx", b"\x82\1"),
    "a persistent id": ("allx", b"Pid\n"),
    "4 GiB of bytes to come": ("allx", b"\x96" + struct.pack("<Q", 1 << 32)),
    "a memo of 2^32 places": ("allx", b"Nr\xff\xff\xff\xff"),
    "a list that holds itself": ("graph", b"}K\0]q\1h\1as"),
    "one long list in many places": (
        "graph",
        b"}(K\0](" + b"K\1" * 20_000 + b"eq\1" + b"".join(
            whole(paper) + b"h\1" for paper in range(1, 20_000)
        ) + b"u",
    ),
    "lists in lists, doubled": (
        "graph",
        b"}K\0](K\1eq\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(64)) + b"s",
    ),
    "tuples in tuples, doubled": (
        "graph",
        b"}(K\1\x85q\0" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(64))
        + b"]u",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(FORGED))
def test_a_forged_pickle_is_refused_by_its_file(tmp_path, case):
    name, body = FORGED[case]
    planetoid(tmp_path, **{name: program(body)})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-300:]
    assert done.stdout.startswith(f"refused: {tmp_path / 'ind.small'}.{name}: ")
    assert REMEDY in done.stdout
    assert not (tmp_path / "owned").exists()
    assert not (ROOT / "owned").exists()


def test_the_same_instructions_unforged_are_read(tmp_path):
    # So that what is refused above is refused for what is forged in it.
    entry = {0: [1], 1: [0]}
    planetoid(
        tmp_path,
        allx=program(csr((504, 3), ROWS, NONE, LINES)),
        ally=program(array((504, 2), bytes(4032), dtype(b"i4"))),
        graph=program(b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(K\0](K\1eK\1](K\0eu"),
    )
    found = read_planetoid(tmp_path).graph
    assert found.features[:504].tolist() == [[1.0, 0.0, 0.0]] * 504
    assert found.node_labels[:504].tolist() == [-1] * 504  # rows of zeros: unknown
    assert found.edges.tolist() == [[0, 1]]
    for protocol in (2, 3, 4):
        planetoid(tmp_path, graph=pickle.dumps(entry, protocol=protocol))
        assert read_planetoid(tmp_path).graph.edges.tolist() == [[0, 1]]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("code", ["<f4", ">f8", "<i4", ">i2", "|u1", "|b1", "<i8"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_are_what_numpy_reads(tmp_path, protocol, code, order):
    rows = np.asarray(np.arange(1512).reshape(504, 3) % 2, dtype=code, order=order)
    for table in (rows, *([sparse.csr_matrix(rows)] if code[0] != ">" else [])):
        planetoid(tmp_path, allx=pickle.dumps(table, protocol=protocol))
        found = read_planetoid(tmp_path).graph.features[:504]
        np.testing.assert_array_equal(found, rows.astype(np.float32))


def test_a_test_node_of_huge_number_is_refused(tmp_path):
    (planetoid(tmp_path) / "ind.small.test.index").write_text("504\n505\n1000000000000\n")
    with pytest.raises(DataError, match=r"ind.small.test.index: node 1000000000000 .*" + "trust"):
        read_planetoid(tmp_path)


def test_damaged_bytes_give_an_error_and_nothing_else(tmp_path):
    rng = np.random.default_rng(5)
    planetoid(tmp_path)
    for name in ("tx", "ty", "graph"):
        path = tmp_path / f"ind.small.{name}"
        right = path.read_bytes()
        for _ in range(150):
            changed = bytearray(right)
            for place in rng.integers(0, min(len(changed), 400), rng.integers(1, 4)):
                changed[place] = rng.integers(0, 256)
            path.write_bytes(changed)
            with suppress(DataError):  # anything else fails the test
                read_planetoid(tmp_path)
        path.write_bytes(right)
