"""Read a list of any size from a mapped pickle, item by item: nothing is run, little memory is used.

:mod:`~kmip_data.pipelines.formats.restricted_pickle` says what is allowed and carries out all opcodes but
the twenty that most of such a file consists of; these are carried out here, at a third of a microsecond each.
Long byte strings are views of the file, not copies. Items leave the list as soon as the pickle appends them,
and what the memo has of them goes with them, so that memory does not grow with the file.
"""

from __future__ import annotations

import itertools
import mmap
import pickletools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kmip_data.pipelines.formats.restricted_pickle import (
    MARK,
    MAX_STACK,
    Allowed,
    Global,
    PickleMachine,
    RefusedError,
    damaged_if_refused,
    ready,
)

_LONG: Final = 64  #: bytes from which a byte string is a view
_NAME: Final = 256  #: length below which text may be a name that later items refer back to
_SHARED: Final = 1_000  #: how many names and types are kept
_OF_ONE: Final = frozenset({tuple, list, dict, memoryview, np.ndarray})  #: never names, and most of a memo
#: Opcodes by their byte (pickletools has the names and what each does).
_PUT, _LONG_PUT, _GET, _LONG_GET, _MEMOIZE = b"qrhj\x94"
_INT1, _INT2, _INT4, _FALSE, _MARK, _EMPTY_TUPLE = b"KMJ\x89()"
_TUPLE, _TUPLE1, _TUPLE2, _TUPLE3 = b"t\x85\x86\x87"
_BYTES1, _BYTES4, _BYTES8, _BYTEARRAY8 = b"CB\x8e\x96"
_REDUCE, _BUILD, _APPEND, _APPENDS, _STOP = b"Rbae."
_LENGTHS: Final = {_BYTES1: 1, _BYTES4: 4, _BYTES8: 8, _BYTEARRAY8: 8}
_OPCODES: Final = {ord(opcode.code): opcode for opcode in pickletools.opcodes}


def stream_list(data: mmap.mmap, allowed: Allowed, *, name: str) -> Iterator[tuple[list[Any], int]]:
    """Yield the items of the list that a pickle of protocol 0 to 5 holds, as they are appended.

    The list comes in parts of up to 1,000 items, as Python's own pickler writes them, each with the position
    behind it. Byte strings of 64 bytes and more reach the globals that are ``allowed``
    (:mod:`~kmip_data.pipelines.formats.restricted_pickle`) as views of ``data``. Raises ``DamagedInput``
    where the pickle is cut off or broken, is not a list, asks for something that is not allowed, or an item
    refers to a part of an earlier one.
    """
    with damaged_if_refused(name, "a pickle of such a list", "a list of plain data and calls of ", allowed):
        yield from _ListReader(data, allowed).batches()


class _ListReader(PickleMachine):
    def __init__(self, data: mmap.mmap, allowed: Allowed) -> None:
        super().__init__(allowed, None)
        self._data, self._view = data, memoryview(data)
        self._memoized = 0

    # Long: one branch per opcode, without a call for each.
    def batches(self) -> Iterator[tuple[list[Any], int]]:  # noqa: C901, PLR0912, PLR0915 -- one branch an opcode
        """Yield what is appended to the outermost list."""
        data, view, stack, end = self._data, self._view, self._stack, len(self._data)
        memo = self._memo
        position = 0
        while position < end:
            code = data[position]
            position += 1
            if code == _MEMOIZE:
                memo[self._memoized] = stack[-1]
                self._memoized += 1
            elif code == _PUT:
                memo[data[position]] = stack[-1]
                position += 1
            elif code == _LONG_PUT:
                memo[int.from_bytes(view[position : position + 4], "little")] = stack[-1]
                position += 4
            elif code == _INT1:
                stack.append(data[position])
                position += 1
            elif code == _GET:
                stack.append(self._recall(data[position]))
                position += 1
            elif code == _LONG_GET:
                stack.append(self._recall(int.from_bytes(view[position : position + 4], "little")))
                position += 4
            elif code == _MARK:
                stack.append(MARK)
                if len(stack) > MAX_STACK:
                    raise RefusedError(f"more than {MAX_STACK:,} values that wait for a container")
            elif code == _REDUCE:
                arguments, called = stack.pop(), stack.pop()
                if type(called) is not Global or type(arguments) is not tuple:
                    raise RefusedError("a call of something that is not a global")
                stack.append(called.call(*arguments))
            elif code == _TUPLE:
                parts = tuple(self._since_mark())
                stack.append(self.nested(parts, parts))
            elif code == _TUPLE1:
                parts = (stack.pop(),)
                stack.append(self.nested(parts, parts))
            elif code == _TUPLE2:
                last = stack.pop()
                parts = (stack.pop(), last)
                stack.append(self.nested(parts, parts))
            elif code == _INT2:
                stack.append(data[position] | data[position + 1] << 8)
                position += 2
            elif code == _FALSE:
                stack.append(False)
            elif code == _EMPTY_TUPLE:
                stack.append(())
            elif code in _LENGTHS:
                width = _LENGTHS[code]
                start = position + width
                position = start + int.from_bytes(view[position:start], "little")
                if position > end:
                    raise EOFError(f"a byte string ends {position - end} bytes behind the end of the file")
                long = position - start >= _LONG
                stack.append(view[start:position] if long else bytes(view[start:position]))
            elif code == _TUPLE3:
                parts = tuple(stack[-3:])
                stack[-3:] = [self.nested(parts, parts)]
            elif code == _INT4:
                stack.append(int.from_bytes(view[position : position + 4], "little", signed=True))
                position += 4
            elif code in (_APPEND, _APPENDS):
                items = [stack.pop()] if code == _APPEND else self._since_mark()
                if len(stack) == 1 and type(stack[0]) is list:
                    yield self._hand_out(items), position
                else:
                    self._gather("APPENDS", items)
            elif code == _STOP:
                if rest := self._rest():
                    yield rest, position
                return
            else:
                position = self._rarely(code, position)
        raise EOFError("no end of the pickle")

    def _rarely(self, code: int, position: int) -> int:
        """Carry out any other opcode by its description in pickletools; return where it ends."""
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise ValueError(f"no opcode: byte {code:#04x} at {position - 1}")
        argument = None
        if opcode.arg is not None:
            self._data.seek(position)
            argument = opcode.arg.reader(self._data)  # type: ignore[arg-type] # a map reads like a file
            position = self._data.tell()
        if opcode.name == "GET":
            self._stack.append(self._recall(argument))
        else:
            self.step(opcode.name, argument)
        return position

    def _recall(self, key: Any) -> Any:
        if key not in self._memo:
            raise RefusedError("a part of an earlier item, or of nothing")
        return ready(self._memo[key])

    def _hand_out(self, items: list[Any]) -> list[Any]:
        """Return the items, which neither the list nor the memo keeps."""
        memo = self._memo
        shared = (
            (key, value)
            for key, value in memo.items()
            if type(value) not in _OF_ONE and _is_shared(ready(value))
        )
        kept = list(itertools.islice(shared, _SHARED))  # the earliest
        memo.clear()
        self._levels.clear()
        memo.update(kept)
        (outer,) = self._stack
        items = [ready(item) for item in (*outer, *items)]
        outer.clear()
        return items

    def _rest(self) -> list[Any]:
        """Return what the list was made of at once."""
        (value,) = self._stack
        if type(value) is not list:
            raise RefusedError(f"a {type(value).__name__} instead of the list")
        return self._hand_out([])


def _is_shared(value: Any) -> bool:
    """True if later items may refer to it: names and types, which all have in common."""
    if isinstance(value, str | bytes):
        return len(value) < _NAME
    return isinstance(value, Global | np.dtype)
