"""Encodings that can be added to a build, one per module; discovered by its ``ENCODING``."""

from __future__ import annotations

import sys

from kmip_data.errors import UsageError
from kmip_data.graphs.encoding import MOST, Encoding, Graphs
from kmip_data.runtime.presence import modules_in

ENCODINGS: list[type[Encoding]] = [module.ENCODING for module in modules_in(sys.modules[__name__])]


def parse_encoding(name: str) -> Encoding:
    """Return the encoding of a name such as ``rwse20``, ``lappe10`` or ``degree-profile-2.0``.

    Raises ``UsageError`` if no encoding has that name.
    """
    for kind in ENCODINGS:
        if (encoding := kind.parse(name)) is not None:
            return encoding
    raise UsageError(
        f"There is no encoding called {name!r}.",
        expected=", ".join(
            kind.stem + ("|".join(kind.choices) or f"{kind.metavar} (1 to {MOST})") for kind in ENCODINGS
        ),
        found=repr(name),
        next="kmip-data encode --help",
    )


__all__ = ["ENCODINGS", "Encoding", "Graphs", "parse_encoding"]
