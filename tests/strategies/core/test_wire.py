from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord
from numpy.lib import format as npy

from trellis.strategies.core import wire

DTYPES = ["bool", "int8", "uint8", "int16", "int64", "uint64", "float16", "float32", "complex128"]
ARRAYS = {
    "vector": np.arange(5.0),
    "matrix": np.arange(6.0).reshape(2, 3),
    "cube": np.arange(24.0).reshape(2, 3, 4),
    "zero-d": np.array(3.5),
    "empty": np.zeros(0),
    "empty matrix": np.zeros((3, 0)),
    "one": np.ones((1, 1, 1)),
    "special": np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324]),
    **{dtype: np.array([0, 1, 0, 1], dtype) for dtype in DTYPES},
    "big endian": np.arange(3, dtype=">f8"),
    "text": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
}


def flower_array(array: np.ndarray) -> Array:
    return Array(array)


def as_saved(array: np.ndarray, version: tuple[int, int]) -> bytes:
    buffer = BytesIO()
    npy.write_array(buffer, array, version=version, allow_pickle=False)
    return buffer.getvalue()


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
class TestEveryArray:
    def test_pack_makes_the_bytes_that_flower_makes(self, array: np.ndarray) -> None:
        ours, theirs = wire.pack(array), flower_array(array)
        assert ours.data == theirs.data
        assert (ours.dtype, ours.shape, ours.stype) == (theirs.dtype, theirs.shape, theirs.stype)
        assert ours.object_id == theirs.object_id

    def test_unpack_reads_what_flower_wrote(self, array: np.ndarray) -> None:
        read = wire.unpack(flower_array(array))
        assert read.shape == array.shape
        assert read.tobytes() == array.tobytes()
        np.testing.assert_array_equal(read, array)

    def test_flower_reads_what_pack_wrote(self, array: np.ndarray) -> None:
        read = wire.pack(array).numpy()
        assert (read.dtype, read.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read, array)

    def test_dtype_survives_the_round_trip(self, array: np.ndarray) -> None:
        assert wire.unpack(wire.pack(array)).dtype == array.dtype


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.arange(24.0).reshape(4, 6)[::2, ::3],
        np.arange(6.0)[::-1],
        np.arange(6.0).reshape(2, 3).T,
    ],
    ids=["fortran matrix", "fortran cube", "strided", "reversed", "transposed"],
)
class TestMemoryOrder:
    def test_flower_and_wire_read_the_same_values(self, array: np.ndarray) -> None:
        np.testing.assert_array_equal(wire.pack(array).numpy(), array)
        np.testing.assert_array_equal(wire.unpack(flower_array(array)), array)
        np.testing.assert_array_equal(wire.unpack(wire.pack(array)), array)

    def test_the_source_may_change_afterwards(self, array: np.ndarray) -> None:
        source = array.copy(order="K")
        packed = wire.pack(source)
        source[...] = -1.0
        np.testing.assert_array_equal(wire.unpack(packed), array)


def test_unpacked_arrays_cannot_be_written() -> None:
    read = wire.unpack(wire.pack(np.arange(3.0)))
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1.0


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_version_of_the_header_is_read(version: tuple[int, int], order: str) -> None:
    array = np.array(np.arange(6.0).reshape(2, 3), order=order)  # type: ignore[call-overload]
    data = as_saved(array, version)
    assert data[6] == version[0]
    read = wire.unpack(Array("float64", (2, 3), "numpy.ndarray", data))
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (4,)}, "needs 32 bytes"),
        ({"shape": (2,)}, "needs 16 bytes"),
        ({"shape": (-3,)}, "bytes"),
        ({"shape": (-1, -3)}, "bytes"),
        ({"dtype": "float32"}, "needs 12 bytes"),
        ({"dtype": "complex128"}, "needs 48 bytes"),
        ({"dtype": "object"}, "never read"),
        ({"dtype": "O"}, "never read"),
        ({"stype": "torch.Tensor"}, "not a numpy array"),
    ],
)
def test_a_record_that_lies_is_refused(change: dict, message: str) -> None:
    packed = wire.pack(np.arange(3.0))
    fields = {"dtype": packed.dtype, "shape": packed.shape, "stype": packed.stype} | change
    with pytest.raises(ValueError, match=message):
        wire.unpack(Array(data=packed.data, **fields))


@pytest.mark.parametrize("length", [0, 3, 6, 9, 10, 40, 128, 151])
def test_truncated_bytes_are_refused(length: int) -> None:
    packed = wire.pack(np.arange(3.0))
    assert length < len(packed.data)
    with pytest.raises(ValueError, match=r"bytes|not a numpy array"):
        wire.unpack(Array("float64", (3,), "numpy.ndarray", packed.data[:length]))


def test_more_bytes_than_the_shape_needs_are_refused() -> None:
    packed = wire.pack(np.arange(3.0))
    with pytest.raises(ValueError, match="carries 32"):
        wire.unpack(Array("float64", (3,), "numpy.ndarray", packed.data + bytes(8)))


def test_pickled_objects_are_never_read() -> None:
    buffer = BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="never read"):
        wire.unpack(Array("object", (1,), "numpy.ndarray", buffer.getvalue()))


def test_objects_are_refused_before_they_are_sent() -> None:
    # What tobytes() writes of an object array are addresses in this process.
    with pytest.raises((TypeError, ValueError)):
        wire.pack(np.array([{"a": 1}], dtype=object))


def test_a_record_is_flowers_own_record() -> None:
    named = {"b": np.arange(3.0), "a": np.eye(2)}
    ours, theirs = wire.record(named), ArrayRecord({k: Array(v) for k, v in named.items()})
    assert list(ours) == ["b", "a"]
    assert ours.object_id == theirs.object_id
    for name, array in wire.arrays(theirs).items():
        np.testing.assert_array_equal(array, named[name])
    assert wire.arrays(wire.record({})) == {}


GOOD = {"x": np.arange(6.0).reshape(2, 3), "n": np.arange(3), "s": np.ones(2, dtype=np.float32)}


def test_what_is_received_is_what_was_sent() -> None:
    record = wire.record(GOOD)
    for shape in ((2, 3), (None, 3), (None, None)):
        np.testing.assert_array_equal(wire.received(record, "x", shape), GOOD["x"])
    np.testing.assert_array_equal(wire.received(record, "n", (3,), "int64"), GOOD["n"])
    assert wire.received(record, "s", (2,), "float32").dtype == np.float32
    edge = wire.record({"x": np.full(400, -wire.LARGEST)})
    assert wire.received(edge, "x", (400,)).size == 400
    assert wire.received(wire.record({"x": np.zeros((0, 3))}), "x", (None, 3)).size == 0


@pytest.mark.parametrize(
    ("array", "shape", "dtype"),
    [
        *((np.array([1.0, value]), (2,), "float64") for value in (np.nan, np.inf, -np.inf, 1e308)),
        (np.array([1.0, -1.01e100]), (2,), "float64"),
        (np.array([1.0, np.nan], dtype=np.float32), (2,), "float32"),
        (np.array([-np.inf, 0.0], dtype=np.float32), (2,), "float32"),
        (np.ones(2), (3,), "float64"),
        (np.ones(2), (None, 2), "float64"),
        (np.ones((2, 2)), (None,), "float64"),
        (np.float64(1.0).reshape(()), (1,), "float64"),
        (np.ones(2, dtype=np.float32), (2,), "float64"),
        (np.ones(2), (2,), "float32"),
        (np.ones(2, dtype=">f8"), (2,), "float64"),
        (np.ones(2, dtype=np.complex128), (2,), "float64"),
        (np.ones(2, dtype=np.int64), (2,), "float64"),
        (np.ones(2), (2,), "int64"),
        (np.ones(2, dtype=np.longdouble), (2,), "float64"),
        (np.array(["a", "b"]), (2,), "float64"),
    ],
    ids=str,
)
def test_what_no_arithmetic_may_meet_is_not_received(array, shape, dtype) -> None:
    with pytest.raises(wire.BadReply, match=r"^x"):
        wire.received(wire.record({"x": array}), "x", shape, dtype)


OTHERS = [None, ConfigRecord({"x": 1.0}), wire.record({"y": np.ones(1)})]


@pytest.mark.parametrize("content", OTHERS)
def test_an_array_that_is_not_there_is_missed(content) -> None:
    with pytest.raises(wire.BadReply, match="no array 'x'"):
        wire.received(content, "x", (1,))


def test_an_array_of_no_known_type_is_refused() -> None:
    packed = wire.pack(np.arange(3.0))
    for dtype in ("object", "no such type", "float32"):
        record = ArrayRecord({"x": Array(dtype, (3,), packed.stype, packed.data)})
        with pytest.raises(wire.BadReply, match=r"^x"):
            wire.received(record, "x", (3,))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e101, -(10**400), True, "1", b"1", [1]])
def test_what_is_no_number_in_range_is_refused(value) -> None:
    with pytest.raises(wire.BadReply, match=r"^x="):
        wire.number(ConfigRecord({"x": value}), "x")
    for content in (None, ConfigRecord({"y": 1.0}), wire.record({"x": np.ones(1)})):
        with pytest.raises(wire.BadReply, match=r"^x=None"):
            wire.number(content, "x")
        assert wire.number(content, "x", 0.0, 1.0, default=0.5) == 0.5


def test_a_number_is_taken_from_its_range() -> None:
    order = ConfigRecord({"x": 3, "y": -0.5})
    assert wire.number(order, "x", 0.0, 3.0) == 3.0
    assert wire.number(order, "y") == -0.5
    for low, high in ((3.5, 4.0), (0.0, 2.0)):
        with pytest.raises(wire.BadReply, match="x=3 in the message"):
            wire.number(order, "x", low, high)
