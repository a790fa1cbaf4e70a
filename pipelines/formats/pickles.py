"""Read a pickle without running it: data, and calls of an explicit allow-list, nothing else.

A pickle is a small program, and Python's own reader lets it import and call anything. This one
interprets the opcodes that build numbers, text, bytes and containers. A global outside the caller's
list is refused when named, before any call, and a call reaches only the function that the list maps
the name to. No class is imported, no attribute is set, nothing is looked up by name.

A list of any size is streamed out of a mapped file: long byte strings are views of it, and items
leave the list as soon as the pickle appends them, so that memory does not grow with the file (27
times less for COCO-SP). The twenty opcodes that most of such a file consists of take a third of a
microsecond each.
"""

from __future__ import annotations

import io
import mmap
import pickletools
import struct
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from kmip_data.errors import DamagedInput

Value: TypeAlias = Any  #: value in a pickle: of any type, until it is checked
#: Name of a global, ``module.name``, to the function that a call of it reaches.
Allowed = Mapping[str, Callable[..., Value]]
Persistent = Callable[[Value], Value] | None
Libraries = AbstractSet[str]  #: top-level modules whose names become placeholders

_NUMBERS = "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT"
_TEXTS = "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8"
_BYTES = "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8"
_VALUES = frozenset(f"{_NUMBERS} {_TEXTS} {_BYTES}".split())
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MIN_VIEW_BYTES = 64  #: fewest bytes of a byte string that becomes a view
_NAME = 256  #: length below which text may be a name that later items refer back to
_KEYS = frozenset({str, int, bool, bytes, float, type(None)})  #: types of keys
_SHARED = 1_000  #: most names and types that outlive a part of a list
#: Types of values that are never names, and most of a memo.
_OF_ONE = frozenset({tuple, list, dict, memoryview, np.ndarray})
#: Opcodes by their byte (pickletools has the names and what each does).
_PUT, _LONG_PUT, _GET, _LONG_GET, _MEMOIZE = b"qrhj\x94"
_INT1, _INT2, _FALSE, _MARK, _EMPTY_TUPLE = b"KM\x89()"
_TUPLE, _TUPLE1, _TUPLE2, _TUPLE3 = b"t\x85\x86\x87"
_REDUCE, _PERSISTENT, _EMPTY_DICT, _SETITEMS, _APPEND, _APPENDS, _STOP = b"RQ}uae."
#: Byte strings and texts, and the width of their length.
_LENGTHS = {ord("C"): 1, ord("B"): 4, 0x8E: 8, 0x96: 8, 0x8C: 1, ord("X"): 4}
_UNICODE = b"\x8cX"
_index: Final = struct.Struct("<I").unpack_from
_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
#: Values that wait for a container: a tuple's all at once, a list's in thousands.
MAX_STACK = 2**17
_MARKER = object()
_BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    struct.error,
)


class RefusedError(Exception):
    """The pickle refers to an object that is not allowed; the message names it."""


def refuse_calls(name: str) -> Callable[..., Value]:
    """Return a placeholder for a name that may be mentioned but not called."""

    def refuse(*_: Value) -> Value:
        raise RefusedError(f"a call of {name}")

    return refuse


class Pending:
    """Result of a call that still waits for its state, which pickles give in an opcode of its own.

    ``finish`` takes the state and sets ``value``, which from then on stands instead of this.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Value = None

    def finish(self, state: Value) -> None:
        """Set ``value`` from ``state``."""
        raise NotImplementedError


class Unread(Pending):
    """Stands for a value of a name outside the allow-list; nothing was looked up or called."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def finish(self, state: Value) -> None:
        """Leave the state unread, too."""
        self.value = self


@dataclass(frozen=True, slots=True)
class _Global:
    """A name of the allow-list on the stack."""

    name: str
    call: Callable[..., Value]


def read_pickle(
    data: bytes,
    allowed: Allowed,
    *,
    name: str,
    persistent: Persistent = None,
    libraries: Libraries = frozenset(),
) -> Value:
    """Return the value of a pickle of protocol 0 to 5.

    Only the globals that are ``allowed`` may be named; ``persistent`` resolves a persistent id, a
    tensor's storage. Raises ``DamagedInput`` where the pickle is cut off or broken, or asks for
    anything else; what comes from one of the ``libraries`` is :class:`Unread`.
    """
    with _damaged_if_refused(name, "a pickle of plain data"):
        machine = _Machine(data, allowed, persistent, streamed=False, libraries=libraries)
        next(machine.run())
        return machine.result()


def stream_list(
    data: bytes | mmap.mmap,
    allowed: Allowed,
    *,
    name: str,
    persistent: Persistent = None,
    libraries: Libraries = frozenset(),
) -> Iterator[tuple[list[Value], int]]:
    """Yield the items of the list that a pickle of protocol 0 to 5 holds, as they are appended.

    The list comes in parts of up to 1,000 items, as Python's own pickler writes them, each with the
    position behind it. Byte strings of 64 bytes and more reach the globals that are ``allowed`` as
    views of ``data``. Raises ``DamagedInput`` as :func:`read_pickle`, or where an item refers to a
    part of an earlier one.
    """
    with _damaged_if_refused(name, "a pickle of a list of plain data"):
        machine = _Machine(data, allowed, persistent, streamed=True, libraries=libraries)
        for items, end in machine.run():
            if items:
                yield items, end
        if type(machine.result()) is not list:
            raise RefusedError(f"a {type(machine.result()).__name__} instead of the list")


@contextmanager
def _damaged_if_refused(name: str, wanted: str) -> Iterator[None]:
    """Turn problems of a pickle into :class:`~kmip_data.errors.DamagedInput`."""
    try:
        yield
    except RefusedError as error:
        raise DamagedInput(f"{name} is not {wanted}, and was not run.", found=str(error)) from error
    except _BROKEN as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise DamagedInput(f"{name} is a damaged pickle ({why}).") from error


class _Machine:
    """The stack and memo of one pickle; ``streamed`` hands the items of its outermost list out."""

    def __init__(
        self,
        data: bytes | mmap.mmap,
        allowed: Allowed,
        persistent: Persistent,
        *,
        streamed: bool,
        libraries: Libraries,
    ) -> None:
        self._data = data
        self._streamed = streamed
        self._libraries = libraries
        self._persistent = persistent
        self._file = io.BytesIO(data) if isinstance(data, bytes) else data
        self._globals = {name: _Global(name, call) for name, call in allowed.items()}
        self._stack: list[Value] = []
        self._memo: dict[int, Value] = {}

    def result(self) -> Value:
        """Return the value of the pickle."""
        (value,) = self._stack
        return _finished_value(value)

    # Long: one branch per opcode, without a call for each.
    def run(self) -> Iterator[tuple[list[Value], int]]:  # noqa: C901, PLR0912, PLR0915 -- a branch each
        """Yield items that are appended to the outermost list, where it is streamed, and at last none."""
        data = self._data
        view = memoryview(self._data)
        stack = self._stack
        push = stack.append
        end = len(self._data)
        memo = self._memo
        memoized = 0
        streamed = self._streamed
        position = 0
        while position < end:
            code = data[position]
            position += 1
            # The most frequent opcodes of a pickle of arrays come first: a branch compares
            # two small numbers, and an opcode takes a tenth of a microsecond.
            if code == _MEMOIZE:
                memo[memoized] = stack[-1]
                memoized += 1
            elif code == _INT1:
                push(data[position])
                position += 1
            elif code == _PUT:
                memo[data[position]] = stack[-1]
                position += 1
            elif code == _LONG_PUT:
                memo[_index(data, position)[0]] = stack[-1]
                position += 4
            elif code == _GET:
                push(self._recall_memo(data[position]))
                position += 1
            elif code == _LONG_GET:
                push(self._recall_memo(_index(data, position)[0]))
                position += 4
            # A call reaches only what the allow-list maps its name to.
            elif code == _REDUCE:
                arguments = stack.pop()
                stack[-1] = _call(stack[-1], arguments)
            elif code == _TUPLE1:
                stack[-1] = (stack[-1],)
            elif code == _TUPLE2:
                last = stack.pop()
                stack[-1] = (stack[-1], last)
            # A mark is a value on the stack, too: what lies above it belongs to the next container.
            elif code == _MARK:
                push(_MARKER)
                if len(stack) > MAX_STACK:
                    raise RefusedError(f"more than {MAX_STACK:,} values that wait for a container")
            elif code == _TUPLE:
                push(tuple(self._pop_to_mark()))
            elif code == _PERSISTENT and self._persistent is not None:
                stack[-1] = self._persistent(stack[-1])
            elif code == _FALSE:
                push(False)
            elif code == _EMPTY_TUPLE:
                push(())
            elif code == _INT2:
                push(data[position] | data[position + 1] << 8)
                position += 2
            elif code == _EMPTY_DICT:
                push({})
            elif code == _SETITEMS:
                items = self._pop_to_mark()
                _require_type(stack[-1], dict).update(self._pairs_of_items(items))
            elif code == _TUPLE3:
                stack[-3:] = [tuple(stack[-3:])]
            # The length is given before the bytes: one that leads behind the end is a lie.
            elif code in _LENGTHS:
                start = position + _LENGTHS[code]
                position = start + int.from_bytes(view[position:start], "little")
                if position > end:
                    raise EOFError(
                        f"a byte string ends {position - end} bytes behind the end of the file"
                    )
                piece = view[start:position]
                # Arrays are long and stay views of the file; names and numbers are copied.
                if code in _UNICODE:
                    push(str(piece, "utf-8", "surrogatepass"))
                elif streamed and len(piece) >= _MIN_VIEW_BYTES:
                    push(piece)
                else:
                    push(bytes(piece))
            elif code in (_APPEND, _APPENDS):
                items = [stack.pop()] if code == _APPEND else self._pop_to_mark()
                # Only the outermost list is streamed: inner ones are parts of an item.
                if streamed and len(stack) == 1 and type(stack[0]) is list:
                    yield self._hand_out(items), position
                else:
                    _require_type(stack[-1], list).extend(items)
            elif code == _STOP:
                whole = streamed and type(self.result()) is list
                yield self._hand_out([]) if whole else [], position
                return
            else:
                position = self._run_rare_opcode(code, position)
        raise EOFError("no end of the pickle")

    def _run_rare_opcode(self, code: int, position: int) -> int:  # noqa: C901, PLR0912 -- one branch a kind of opcode
        """Read any other opcode by its description in pickletools and carry it out.

        Returns the position behind it.
        """
        description = _OPCODES.get(code)
        if description is None:
            raise ValueError(f"no opcode: byte {code:#04x} at {position - 1}")
        # Opcodes of headers, names and numbers are rare, so generality may be slow.
        argument: Value = None
        if description.arg is not None:
            self._file.seek(position)
            argument = description.arg.reader(self._file)  # type: ignore[arg-type] # a map reads like a file
            position = self._file.tell()
        opcode = description.name
        stack = self._stack
        if len(stack) > MAX_STACK:
            raise RefusedError(f"more than {MAX_STACK:,} values that wait for a container")
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode == "EMPTY_LIST":
            stack.append([])
        elif opcode == "PUT":
            self._memo[argument] = stack[-1]
        elif opcode == "GET":
            stack.append(self._recall_memo(argument))
        # Containers take all values above the last mark.
        elif opcode in {"LIST", "DICT", "POP_MARK"}:
            items = self._pop_to_mark()
            if opcode != "POP_MARK":
                stack.append(items if opcode == "LIST" else self._pairs_of_items(items))
        elif opcode == "SETITEM":
            value = stack.pop()
            key = stack.pop()
            _require_type(stack[-1], dict).update(self._pairs_of_items([key, value]))
        elif opcode == "POP":
            stack.pop()
        elif opcode == "DUP":
            stack.append(stack[-1])
        elif opcode == "GLOBAL":
            self._push_name(*argument.split(" ", 1))
        elif opcode == "STACK_GLOBAL":
            attribute = stack.pop()
            module = stack.pop()
            self._push_name(module, attribute)
        # A class of the allow-list is called as a function; no __new__ is looked up.
        elif opcode == "NEWOBJ":
            arguments = stack.pop()
            stack[-1] = _call(stack[-1], arguments)
        elif opcode == "BUILD":
            # The state of an object would set attributes: only values that wait for one take it.
            state = stack.pop()
            if not isinstance(stack[-1], Pending):
                raise RefusedError("a state for an object that takes none")
            stack[-1].finish(state)
            stack[-1] = stack[-1].value
        elif opcode not in {"PROTO", "FRAME"}:
            raise RefusedError(f"the opcode {opcode}")
        return position

    def _recall_memo(self, key: Value) -> Value:
        value = self._memo.get(key, _MARKER)
        if value is _MARKER:
            raise RefusedError("a part of an earlier item, or of nothing")
        return _finished_value(value)

    def _hand_out(self, items: list[Value]) -> list[Value]:
        """Return the items, and drop them from list and memo."""
        memo = self._memo
        # The memo would hold every item: only names and types, the earliest 1,000, outlive a part.
        shared: dict[int, Value] = {}
        for key, value in memo.items():
            if type(value) not in _OF_ONE and _is_shared(_finished_value(value)):
                shared[key] = value
                if len(shared) == _SHARED:
                    break
        memo.clear()
        memo.update(shared)

        # Pending values have received their state by now.
        (outer,) = self._stack
        ready = [_finished_value(item) for item in (*outer, *items)]
        outer.clear()
        return ready

    def _push_name(self, module: Value, attribute: Value) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise RefusedError("a global whose name is not text")
        name = f"{module}.{attribute}"
        allowed = self._globals.get(name)
        if allowed is None and module.partition(".")[0] in self._libraries:
            self._stack.append(_Global(name[:200], lambda *_: Unread(name[:200])))
            return
        if allowed is None or "." in attribute:  # one name, one way to write it
            raise RefusedError(ascii(f"{module}.{attribute}"[:200]))
        self._stack.append(allowed)

    def _pairs_of_items(self, items: list[Value]) -> dict[Value, Value]:
        """Return keys and values; with libraries, without pairs whose keys are no numbers or texts."""
        keys = items[::2]
        values = items[1::2]
        # Hashing nested tuples takes time that doubles with each level.
        plain = [type(key) in _KEYS for key in keys]
        if all(plain) or not self._libraries:
            if not all(plain):
                raise RefusedError("a key that is neither a number nor text")
            return dict(zip(keys, values, strict=True))
        return {
            key: value for key, value, is_plain in zip(keys, values, plain, strict=True) if is_plain
        }

    def _pop_to_mark(self) -> list[Value]:
        mark = len(self._stack) - 1
        while self._stack[mark] is not _MARKER:
            mark -= 1
            if mark < 0:
                raise ValueError("no mark")
        items = self._stack[mark + 1 :]
        del self._stack[mark:]
        return items


def _call(called: Value, arguments: Value) -> Value:
    if type(called) is Unread:  # an object that is called, too
        return called
    if type(called) is not _Global or type(arguments) is not tuple:
        raise RefusedError("a call of something that is not a global")
    return called.call(*arguments)


def _finished_value(value: Value) -> Value:
    """Return the value itself of what was pending when it was kept."""
    if isinstance(value, Pending) and value.value is not None:
        return value.value
    return value


def _require_type(value: Value, wanted: type) -> Value:
    if type(value) is Unread:
        return wanted()  # the items of a container that is not read
    if type(value) is not wanted:
        raise TypeError(f"a {wanted.__name__} was expected")
    return value


def _is_shared(value: Value) -> bool:
    """True if later items may refer to it, as to names and types."""
    if isinstance(value, str | bytes):
        return len(value) < _NAME
    return isinstance(value, _Global | np.dtype)
