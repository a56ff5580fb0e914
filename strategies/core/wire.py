"""Arrays on the wire: Flower's own records and format, read and written without header work.

A Flower `Array` is a ``.npy`` file in memory with its dtype and shape beside it. ``numpy.load`` and
``numpy.save`` spend most of a small array's time on the text header. `pack` writes that header once
per dtype and shape; `unpack` trusts the record's own dtype and shape and checks them against the
number of bytes, so a reply that lies about its size is an error, not a misread.

`received` is how a client reads an array, and `number` how it reads a number, of a message: the
server may have put anything there, and what is not finite, or beyond all that models and graphs
have, must not meet the data. Whether they refuse depends on the message and on public sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from numpy.lib import format as npy
from numpy.typing import NDArray

RecordType = ArrayRecord | ConfigRecord | MetricRecord

_STYPE = "numpy.ndarray"
_MAGIC = b"\x93NUMPY"
# What a client may tell of its columns at enrolment (``moments-count`` and so on).
MOMENTS = ("count", "means", "spreads")
LARGEST = 1e100  # beyond this a sum of squares overflows


class BadReply(ValueError):
    """A message that is rejected; a round goes on without it."""


@lru_cache(maxsize=256)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the ``.npy`` header of a C-ordered array."""
    if np.dtype(dtype).hasobject:
        raise TypeError(f"an array of dtype {dtype} holds addresses, not values; it is never sent")
    buffer = BytesIO()
    description = npy.dtype_to_descr(np.dtype(dtype))
    npy.write_array_header_1_0(
        buffer, {"descr": description, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


@lru_cache(maxsize=64)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def pack(array: NDArray[Any]) -> Array:
    """Return ``array`` as a Flower `Array`, as ``Array(array)`` does, in C order."""
    dtype, shape = _dtype_name(array.dtype), array.shape
    # Not by Array's own constructor: it takes longer to find out which of its three kinds of
    # arguments these are than all else that is done here.
    result: Array = object.__new__(Array)
    data = _header(dtype, shape) + array.tobytes()
    result.__dict__.update(dtype=dtype, shape=shape, stype=_STYPE, data=data)
    return result


def unpack(array: Array) -> NDArray[Any]:
    """Return the content of a Flower `Array` as a read-only view, without copying.

    Raises
    ------
    ValueError
        Where the bytes are not a ``.npy`` array of the record's dtype and shape.
    """
    data = array.data
    if array.stype != _STYPE or data[:6] != _MAGIC or len(data) < 10:
        raise ValueError(f"not a numpy array on the wire (stype {array.stype!r})")
    dtype = np.dtype(array.dtype)
    if dtype.hasobject:
        raise ValueError(f"an array of dtype {array.dtype} is never read from the wire")
    # Version 1 headers have a 2-byte length, version 2 and 3 a 4-byte one.
    wide = data[6] > 1
    start = (12 if wide else 10) + int.from_bytes(data[8 : 12 if wide else 10], "little")
    shape = tuple(array.shape)
    if b"'fortran_order': True" in data[:start] and len(shape) > 1:
        shape = shape[::-1]
        return _view(data, dtype, shape, start).T
    return _view(data, dtype, shape, start)


def _view(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> NDArray[Any]:
    count = math.prod(shape)
    if min(shape, default=0) < 0 or len(data) - start != count * dtype.itemsize:
        raise ValueError(
            f"array of shape {shape} and dtype {dtype} needs {count * dtype.itemsize} bytes, "
            f"the record carries {len(data) - start}"
        )
    return np.frombuffer(data, dtype, count, start).reshape(shape)


def check_reals(array: NDArray[Any], name: str, shape: tuple[int, ...]) -> None:
    """Refuse what is not a float64 array of ``shape``, finite and no larger than `LARGEST`.

    Raises
    ------
    BadReply
        Names the array and what is wrong with it.
    """
    if array.shape != shape or array.dtype != np.float64:
        raise BadReply(
            f"{name} is {array.dtype} of shape {array.shape}, not float64 of shape {shape}"
        )
    # One product tells of nearly all arrays that there is nothing wrong with any entry.
    if np.vdot(array, array) < LARGEST**2:
        return
    if not np.all(np.isfinite(array)):
        raise BadReply(f"{name} has {np.sum(~np.isfinite(array))} entries that are not finite")
    if array.size and np.max(np.abs(array)) > LARGEST:
        raise BadReply(f"{name} has an entry of size {np.max(np.abs(array)):g}")


def received(
    content: RecordType | None, name: str, shape: tuple[int | None, ...], dtype: str = "float64"
) -> NDArray[Any]:
    """Return one array of a message, read-only, checked before any arithmetic.

    Parameters
    ----------
    content : the record that should have it
    name : the array's
    shape : None in it stands for any length
    dtype : must be this one; reals must pass `check_reals`

    Raises
    ------
    BadReply
        Names the array and what is wrong with it.
    """
    if not isinstance(content, ArrayRecord) or name not in content:
        raise BadReply(f"the message has no array {name!r}")
    try:
        array = unpack(content[name])
    except (TypeError, ValueError) as error:
        raise BadReply(f"{name}: {error}") from None
    fits = array.shape == shape or (
        array.ndim == len(shape)
        and all(wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True))
    )
    if not fits or array.dtype != dtype:
        raise BadReply(
            f"{name} is {array.dtype} of shape {array.shape}, not {dtype} of shape {shape}"
        )
    if array.dtype.kind == "f":
        check_reals(array.astype(np.float64, copy=False), name, array.shape)
    return array


def number(
    content: RecordType | None,
    name: str,
    low: float = -LARGEST,
    high: float = LARGEST,
    default: float | None = None,
) -> float:
    """Return one number of a message, from ``low`` to ``high``; ``default`` where there is none.

    Raises
    ------
    BadReply
        Names the number, what it is and what it must be.
    """
    value = content.get(name, default) if isinstance(content, ConfigRecord) else default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadReply(f"{name}={value!r} in the message: a number from {low:g} to {high:g}")
    return float(value)


def record(arrays: Mapping[str, NDArray[Any] | Array]) -> ArrayRecord:
    """Return named arrays, or what `pack` made of them, as a Flower `ArrayRecord`."""
    result = ArrayRecord()
    for name, array in arrays.items():
        result[name] = array if isinstance(array, Array) else pack(array)
    return result


def arrays(content: RecordType) -> dict[str, NDArray[Any]]:
    """Return a Flower `ArrayRecord` as named read-only arrays; refuse another kind of record."""
    if not isinstance(content, ArrayRecord):
        raise ValueError(f"a {type(content).__name__} where arrays were expected")
    return {name: unpack(array) for name, array in content.items()}
