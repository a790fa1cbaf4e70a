"""Steps that resolve an error, as data that whoever prints them completes.

A step is a :class:`Setting`, a :class:`Command`, or words, which are printed and never read: names of
files, columns and runs may stand in them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Values of a setting: a list sets its key several times, ``None`` leaves the key out.
Values = Mapping[str, object]


@dataclass(frozen=True)
class Setting:
    """Values to add to the call or command that failed; without values, the same one again.

    A key is a parameter of a build, a key of a configuration, or an option of a command without its
    dashes. The command line prints the typed command with these values, Python prints arguments.

    >>> print(Setting({"label": "toxic", "k": None}))
    label='toxic', without k
    """

    values: Values

    def __str__(self) -> str:
        pieces = []
        for key, value in self.values.items():
            pieces.append(f"without {key}" if value is None else f"{key}={_literal(value)}")
        return ", ".join(pieces) or "the same again"


SAME_AGAIN = Setting({})


@dataclass(frozen=True, init=False)
class Command:
    """A whole command, by its words: those of ``template``, with ``values`` for ``{}`` and at the end.

    A value is one word, whatever is in it.

    >>> print(Command("kmip-data info {} --json", "owner's data"))
    kmip-data info 'owner'"'"'s data' --json
    """

    words: tuple[str, ...]

    def __init__(self, template: str, *values: object) -> None:
        rest = [*map(str, values)]
        words = [rest.pop(0) if word == "{}" else word for word in template.split()]
        object.__setattr__(self, "words", (*words, *rest))

    def __str__(self) -> str:
        return shlex.join(self.words)


Step = Setting | Command | str


def joined_setting(settings: Iterable[Setting]) -> Setting:
    """Return one setting with all values; a key with several values has a list of them.

    >>> print(joined_setting([Setting({"ignore": "a"}), Setting({"ignore": "b", "header": "no"})]))
    ignore=['a', 'b'], header='no'
    """
    joined: dict[str, object] = {}
    for setting in settings:
        for key, value in setting.values.items():
            earlier = values_of(joined.get(key))
            values = [*earlier, *(added for added in values_of(value) if added not in earlier)]
            joined[key] = values if len(values) > 1 else value
    return Setting(joined)


def values_of(value: object) -> list[object]:
    """Return the values of a key: those of a list, one, or none."""
    if isinstance(value, list | tuple):
        return [*value]
    return [] if value is None else [value]


def as_steps(steps: Step | Sequence[Step] | None) -> list[Step]:
    """Return the steps of an error, given as one, as several or as none."""
    if steps is None:
        return []
    return [steps] if isinstance(steps, Setting | Command | str) else list(steps)


def _literal(value: object) -> str:
    """Return a value as Python writes it; numbers and booleans may be texts of a command line."""
    if isinstance(value, str) and value in {"true", "false"}:
        return value.title()
    if isinstance(value, str) and value.isdecimal():
        return value
    return repr(value)
