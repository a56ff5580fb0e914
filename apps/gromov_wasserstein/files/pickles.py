"""Reads arrays, sparse matrices and lists of neighbours from pickles, without running them.

A pickle is a program that builds Python objects. `pickle.Unpickler` runs it, and restricting it to
numpy's own classes is not enough: an array's state may hold pointers of the file's choice. Here
`pickletools` splits the program into its instructions, which are interpreted on plain values. They
can make numbers, texts, lists, pairs, and descriptions of an array, a type or a sparse matrix;
anything else is refused. Arrays are made of bytes whose number fits their shape and type.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Of a matrix when it is dense; 1 GiB of single precision. A file of a few bytes can ask for more.
MOST_ENTRIES = 2**28
_TYPES = {"b1", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}
_ORDERS = {"<", ">", "=", "|"}
_INT64 = np.iinfo(np.int64)


class UnreadablePickle(ValueError):
    """Bytes that are no whole pickle."""


class UnexpectedPickle(ValueError):
    """A pickle of something else than arrays, sparse matrices and neighbours."""


class ForbiddenName(UnexpectedPickle):
    """A pickle that names a class or function that these files do not need."""


class _Name(Enum):
    """A class or function that a pickle may name; none is ever called."""

    ARRAY = "numpy.ndarray"
    NEW_ARRAY = "numpy.core.multiarray._reconstruct"
    TYPE = "numpy.dtype"
    SPARSE = "scipy.sparse.csr_matrix"
    TABLE = "collections.defaultdict"
    LIST = "list"


# By exact name: an allowed package is full of functions that a pickle could name.
_NAMES = {
    ("numpy", "ndarray"): _Name.ARRAY,
    ("numpy", "dtype"): _Name.TYPE,
    ("numpy.core.multiarray", "_reconstruct"): _Name.NEW_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _Name.NEW_ARRAY,
    ("scipy.sparse.csr", "csr_matrix"): _Name.SPARSE,
    ("scipy.sparse._csr", "csr_matrix"): _Name.SPARSE,
    ("collections", "defaultdict"): _Name.TABLE,
    ("__builtin__", "list"): _Name.LIST,
    ("builtins", "list"): _Name.LIST,
}


@dataclass(eq=False)
class _Described:
    """An array, a type or a sparse matrix, as the pickle describes it."""

    name: _Name
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(eq=False)
class _Pairs:
    """A dictionary, as pairs: to hash a key that nobody has checked can take for ever."""

    items: list[tuple[Any, Any]]


def read_pickle(data: bytes) -> object:
    """Return what a pickle describes, for `matrix_of` or `neighbours_of`.

    Raises
    ------
    UnreadablePickle
        For bytes that are no whole pickle.
    UnexpectedPickle
        For a pickle that does anything that these files do not need.
    """
    try:
        return _Machine().run(data)
    except UnexpectedPickle:
        raise
    except Exception as error:  # whatever damaged bytes provoke
        raise UnreadablePickle(str(error)) from None


def matrix_of(found: object) -> NDArray[Any]:
    """Return the matrix of numbers that a pickle describes, dense."""
    if isinstance(found, _Described) and found.name is _Name.SPARSE:
        return _dense(found)
    return _array(found, 2)


def neighbours_of(found: object) -> dict[int, list[int]]:
    """Return the dictionary of neighbours that a pickle describes: whole numbers of 64 bits."""
    if not isinstance(found, _Pairs):
        raise UnexpectedPickle("no dictionary")
    for paper, ends in found.items:
        if type(ends) is not list or not all(_is_whole(node) for node in (paper, *ends)):
            raise UnexpectedPickle("papers are whole numbers")
    return dict(found.items)


class _Machine:
    """Interprets a pickle's instructions; values are on a stack, marks divide it."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under each mark
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> object:
        for code, argument, _ in pickletools.genops(data):
            if code.name == "STOP":
                break
            if code.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[code.name])
            elif code.name in _LITERALS:
                self.stack.append(argument)
            elif code.name in _STEPS:
                _STEPS[code.name](self, argument)
            else:
                raise UnexpectedPickle(f"instruction {code.name}")
        (found,) = self.stack  # an error where values are left over
        return found

    def pop_mark(self) -> list[Any]:
        """Return what lies above the last mark, and go back to what lies under it."""
        above, self.stack = self.stack, self.below.pop()
        return above

    def mark(self, _: object) -> None:
        self.below.append(self.stack)
        self.stack = []

    def put(self, place: int | None) -> None:
        self.memo[len(self.memo) if place is None else place] = self.stack[-1]

    def get(self, place: int) -> None:
        value = self.memo[place]
        if isinstance(value, list | _Pairs):
            # A list that stands in many places makes a huge graph of a small file.
            raise UnexpectedPickle("a list or dictionary is used twice")
        self.stack.append(value)

    def find_name(self, argument: str | None) -> None:
        """GLOBAL has module and name as its argument, STACK_GLOBAL on the stack."""
        if argument is None:
            name, module = self.stack.pop(), self.stack.pop()
        else:
            module, _, name = argument.partition(" ")
        if not (isinstance(module, str) and isinstance(name, str)):
            raise UnexpectedPickle("a name that is no text")
        if (module, name) not in _NAMES:
            raise ForbiddenName(f"asks for {module[:50]}.{name[:50]}")
        self.stack.append(_NAMES[module, name])

    def add_tuple(self, count: int) -> None:
        values = [self.stack.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def add_marked_tuple(self, _: object) -> None:
        values = self.pop_mark()
        self.stack.append(tuple(values))

    def append(self, values: Iterable[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise UnexpectedPickle("appends to what is no list")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], _Pairs):
            raise UnexpectedPickle("sets items of what is no dictionary")
        self.stack[-1].items.extend(zip(values[::2], values[1::2], strict=True))

    def call(self, _: object) -> None:
        """REDUCE and NEWOBJ: a name and its arguments become a description."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, _Name) and isinstance(arguments, tuple)):
            raise UnexpectedPickle("calls what is no name")
        first = arguments[0] if arguments else None
        if name is _Name.TABLE and arguments in ((), (_Name.LIST,)):
            self.stack.append(_Pairs([]))
        elif (
            (name is _Name.SPARSE and not arguments)
            or (name is _Name.NEW_ARRAY and first is _Name.ARRAY)
            or (name is _Name.TYPE and isinstance(first, str))
        ):
            self.stack.append(_Described(name, arguments))
        else:
            raise UnexpectedPickle(f"{name.value} with arguments that it does not have here")

    def build(self, _: object) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, _Described) or target.state is not None:
            raise UnexpectedPickle("sets the state of what has none, or twice")
        target.state = state


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
# Python 2 wrote its texts, which are bytes, as BINSTRING: they come as Latin-1.
_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING"}
_LITERALS |= {"BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "GLOBAL": _Machine.find_name,
    "STACK_GLOBAL": _Machine.find_name,
    "TUPLE1": lambda machine, _: machine.add_tuple(1),
    "TUPLE2": lambda machine, _: machine.add_tuple(2),
    "TUPLE3": lambda machine, _: machine.add_tuple(3),
    "TUPLE": _Machine.add_marked_tuple,
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_mark()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append(_Pairs([])),
    "SETITEM": lambda machine, _: machine.set_items(
        [machine.stack.pop(), machine.stack.pop()][::-1]
    ),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_mark()),
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "BUILD": _Machine.build,
}


def _array(found: object, rank: int) -> NDArray[Any]:
    """Return a described array; its bytes are as many as shape and type need, no more or less."""
    if not isinstance(found, _Described) or found.name is not _Name.NEW_ARRAY:
        raise UnexpectedPickle("a matrix of numbers is needed")
    if not isinstance(found.state, tuple) or len(found.state) != 5:
        raise UnexpectedPickle("an array without its five parts")
    version, shape, kind, fortran, raw = found.state
    if version != 1 or not isinstance(fortran, bool | int):
        raise UnexpectedPickle("an array of an unknown version")
    dtype, shape = _dtype(kind), _shape(shape, rank)
    raw = _bytes(raw)
    if len(raw) != dtype.itemsize * math.prod(shape):
        raise UnexpectedPickle(f"an array {dtype} of shape {shape} from {len(raw)} bytes")
    flat = np.frombuffer(raw, dtype) if raw else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _dtype(found: object) -> np.dtype[Any]:
    """Return a described type: a number of known size, no structure, no object."""
    if not isinstance(found, _Described) or found.name is not _Name.TYPE:
        raise UnexpectedPickle("an array without a type")
    code, state = found.arguments[0], found.state
    if code not in _TYPES:
        raise UnexpectedPickle("an array of what is no number of a known size")
    if not isinstance(state, tuple) or len(state) < 5 or any(x is not None for x in state[2:5]):
        raise UnexpectedPickle("a structured type")
    order = state[1]
    if not isinstance(order, str) or order not in _ORDERS:
        raise UnexpectedPickle("a type without an order of bytes")
    return np.dtype(order + code)


def _shape(found: object, rank: int) -> tuple[int, ...]:
    if not isinstance(found, tuple) or len(found) != rank:
        raise UnexpectedPickle(f"a shape of {rank} numbers is needed")
    if not all(_is_whole(size) and size >= 0 for size in found):
        raise UnexpectedPickle("a shape that is not of whole numbers")
    if math.prod(found) > MOST_ENTRIES:
        raise UnexpectedPickle(f"{found} is more than {MOST_ENTRIES} entries")
    return found


def _bytes(found: object) -> bytes:
    if isinstance(found, str):
        try:
            return found.encode("latin-1")
        except UnicodeEncodeError:
            raise UnexpectedPickle("bytes that are text") from None
    if not isinstance(found, bytes):
        raise UnexpectedPickle("an array without its bytes")
    return found


def _dense(found: _Described) -> NDArray[Any]:
    """Return a described sparse matrix; an index out of range would write beyond it."""
    from scipy import sparse

    items = found.state.items if isinstance(found.state, _Pairs) else []
    parts = {key: value for key, value in items if isinstance(key, str)}
    if missing := [key for key in ("data", "indices", "indptr", "_shape") if key not in parts]:
        raise UnexpectedPickle(f"a sparse matrix without {missing[0]}")
    shape = _shape(parts["_shape"], 2)
    data, indices, starts = (_array(parts[key], 1) for key in ("data", "indices", "indptr"))
    if indices.dtype.kind != "i" or starts.dtype.kind != "i":
        raise UnexpectedPickle("a sparse matrix whose indices are no whole numbers")
    if len(starts) != shape[0] + 1 or len(data) != len(indices):
        raise UnexpectedPickle("a sparse matrix whose parts do not fit its shape")
    if starts[0] != 0 or starts[-1] > len(data) or np.any(starts[1:] < starts[:-1]):
        raise UnexpectedPickle("a sparse matrix whose rows do not follow each other")
    if indices.size and not (indices.min() >= 0 and indices.max() < shape[1]):
        raise UnexpectedPickle("a sparse matrix with an entry outside its shape")
    return sparse.csr_matrix((data, indices, starts), shape=shape).toarray()


def _is_whole(found: object) -> bool:
    return type(found) is int and _INT64.min <= found <= _INT64.max
