"""Read a pickle without running it: data, and calls of an explicit allow-list, nothing else.

A pickle is a small program, and Python's own reader lets it import and call anything. This one carries
out the opcodes that build numbers, text, bytes and containers itself; a global that is not on the
caller's list is refused where it is named, before any call, and a call only ever reaches what the list
maps the name to. No class is imported, no attribute is set, nothing is looked up by name.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from kmip_data.errors import DamagedInput

#: Name of a global, ``module.name``, to what a call of it does with its arguments.
Allowed = Mapping[str, Callable[..., Any]]

_VALUES: Final = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)
_CONSTANTS: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: Final[Mapping[str, Callable[[], Any]]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MAX_LEVELS: Final = 64  #: containers in each other
MAX_STACK: Final = 2**17  #: values that wait for a container: a tuple's all at once, a list's in thousands
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset})
MARK: Final = object()
_BROKEN: Final = (ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, struct.error)


class RefusedError(Exception):
    """The pickle asks for something that is not allowed; the message names it."""


def never_called(what: str) -> Callable[..., Any]:
    """Return the stand-in of a name that may be mentioned but not called."""

    def refuse(*_: Any) -> Any:
        raise RefusedError(f"a call of {what}")

    return refuse


class Pending:
    """Result of a call that still waits for its state, which pickles give in an opcode of its own.

    ``finish`` takes the state and sets ``value``, which then replaces this.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def finish(self, state: Any) -> None:
        """Set ``value`` from ``state``."""
        raise NotImplementedError


class Global:
    """A name of the allow-list on the stack."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call


def read_pickle(
    file: IO[bytes], allowed: Allowed, *, name: str, persistent: Callable[[Any], Any] | None = None
) -> Any:
    """Return what a pickle of protocol 0 to 5 holds.

    Only the globals that are ``allowed`` may be named; ``persistent`` resolves a persistent id (a
    tensor's storage), and without it they are refused. Raises ``DamagedInput`` where the pickle is cut off or
    broken, or asks for something that is not allowed; nothing of it ran.
    """
    with damaged_if_refused(name, "a pickle of plain data", "nothing but ", allowed):
        machine = PickleMachine(allowed, persistent)
        for opcode, argument, _ in pickletools.genops(file):
            machine.step(opcode.name, argument)
        return machine.result()


@contextmanager
def damaged_if_refused(name: str, wanted: str, content: str, allowed: Allowed) -> Iterator[None]:
    """Turn what is found wrong with a pickle into :class:`~kmip_data.errors.DamagedInput`.

    ``wanted`` is what it should be, ``content`` what may be in it besides the globals that are ``allowed``.
    """
    try:
        yield
    except RefusedError as error:
        raise DamagedInput(
            f"{name} is not {wanted}, and was not run.",
            expected=f"{content}{', '.join(sorted(allowed)) or 'plain data'}",
            found=str(error),
        ) from error
    except (*_BROKEN, MemoryError) as error:
        raise DamagedInput(
            f"{name} is a damaged pickle.",
            expected="a whole pickle of protocol 0 to 5",
            found=f"{type(error).__name__}: {str(error)[:200]}",
        ) from error


class PickleMachine:
    """The stack and memo of one pickle; :mod:`.pickle_stream` drives it faster."""

    def __init__(self, allowed: Allowed, persistent: Callable[[Any], Any] | None) -> None:
        self._globals = {name: Global(name, call) for name, call in allowed.items()}
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._levels: dict[int, int] = {}  # of containers by id, where they are more than one

    def nested(self, container: Any, items: Iterable[Any], *, new: bool = True) -> Any:
        """Return ``container``, which gets ``items``, unless that makes too many levels."""
        levels = self._levels
        level = 1 if new else levels.get(id(container), 1)
        for item in items:
            if type(item) in _CONTAINERS:
                level = max(level, 1 + levels.get(id(item), 1))
        if level > MAX_LEVELS:
            raise RefusedError(f"more than {MAX_LEVELS} containers in each other")
        if level > 1:
            levels[id(container)] = level
        else:
            levels.pop(id(container), None)
        return container

    def result(self) -> Any:
        """Return what the pickle holds."""
        (value,) = self._stack
        return ready(value)

    def step(self, opcode: str, argument: Any) -> None:  # noqa: C901, PLR0912 -- one branch a kind of opcode
        """Carry out one opcode."""
        stack = self._stack
        if len(stack) > MAX_STACK:
            raise RefusedError(f"more than {MAX_STACK:,} values that wait for a container")
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _EMPTY:
            stack.append(self.nested(_EMPTY[opcode](), ()))
        elif opcode in _TUPLES:
            count = _TUPLES[opcode]
            if len(stack) < count:
                raise IndexError(opcode)
            parts = tuple(stack[-count:])
            stack[-count:] = [self.nested(parts, parts)]
        elif opcode in {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"}:
            self._memo[len(self._memo) if opcode == "MEMOIZE" else argument] = stack[-1]
        elif opcode in {"GET", "BINGET", "LONG_BINGET"}:
            stack.append(ready(self._memo[argument]))
        elif opcode == "MARK":
            stack.append(MARK)
        elif opcode in {"APPENDS", "SETITEMS", "ADDITEMS", "LIST", "TUPLE", "DICT", "FROZENSET", "POP_MARK"}:
            self._gather(opcode, self._since_mark())
        elif opcode == "APPEND":
            self._gather("APPENDS", [stack.pop()])
        elif opcode == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._gather("SETITEMS", [key, value])
        elif opcode == "POP":
            stack.pop()
        elif opcode == "DUP":
            stack.append(stack[-1])
        elif opcode == "GLOBAL":
            self._name(*argument.split(" ", 1))
        elif opcode == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            self._name(module, attribute)
        elif opcode in {"REDUCE", "NEWOBJ"}:
            arguments, called = stack.pop(), stack.pop()
            if not isinstance(called, Global) or not isinstance(arguments, tuple):
                raise RefusedError("a call of something that is not a global")
            stack.append(called.call(*arguments))
        elif opcode == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], Pending):
                raise RefusedError("a state for an object that takes none")
            stack[-1].finish(state)
            stack[-1] = stack[-1].value
        elif opcode in {"PERSID", "BINPERSID"} and self._persistent is not None:
            stack.append(self._persistent(stack.pop() if opcode == "BINPERSID" else argument))
        elif opcode not in {"PROTO", "FRAME", "STOP"}:
            raise RefusedError(f"the opcode {opcode}")

    def _name(self, module: Any, attribute: Any) -> None:
        if not isinstance(module, str) or not isinstance(attribute, str):
            raise RefusedError("a global whose name is not text")
        found = self._globals.get(f"{module}.{attribute}")
        if found is None or "." in attribute:  # one name, one way to write it
            raise RefusedError(ascii(f"{module}.{attribute}"[:200]))
        self._stack.append(found)

    def _since_mark(self) -> list[Any]:
        """Take off the stack what lies above the last mark, and the mark."""
        at = len(self._stack) - 1
        while self._stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise ValueError("no mark")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _gather(self, opcode: str, items: list[Any]) -> None:
        """Put items into the container on the stack, or make a new one of them."""
        stack = self._stack
        if opcode == "LIST":
            stack.append(self.nested(items, items))
        elif opcode == "TUPLE":
            stack.append(self.nested(tuple(items), items))
        elif opcode == "FROZENSET":
            stack.append(frozenset(map(_plain_key, items)))
        elif opcode in {"DICT", "SETITEMS"}:
            pairs = dict(zip(map(_plain_key, items[::2]), items[1::2], strict=True))
            if opcode == "DICT":
                stack.append(self.nested(pairs, items))
            else:
                self.nested(_of_type(stack[-1], dict), items, new=False).update(pairs)
        elif opcode == "APPENDS":
            self.nested(_of_type(stack[-1], list), items, new=False).extend(items)
        elif opcode == "ADDITEMS":
            _of_type(stack[-1], set).update(map(_plain_key, items))


def ready(value: Any) -> Any:
    """Return the value itself of what was pending when it was kept."""
    return value.value if isinstance(value, Pending) and value.value is not None else value


def _of_type(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise TypeError(f"a {wanted.__name__} was expected")
    return value


def _plain_key(key: Any) -> Any:
    # The hash of tuples in tuples takes time that doubles with each level.
    if not isinstance(key, str | int | bytes | float | None):
        raise RefusedError("a key that is neither a number nor text")
    return key
