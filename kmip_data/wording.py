"""Text of messages: cleaned, counted, rounded and quoted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

#: C0 but tab and line feed, DEL, C1, and what reorders text: a terminal obeys them, unseen.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: Parameters of datasets that are options of commands; ``--set KEY=VALUE`` takes the others.
OPTIONS = {
    "k": "--k",
    "limit": "--limit",
    "split": "--split-rule",
    "split_seed": "--split-seed",
    "test_area": "--test-area",
}
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_SECRET = re.compile(
    r"(?i)([?&;][^=&;#\s]*(?:token|sig|signature|secret|passw|pwd|credential|auth|key|session)[^=&;#\s]*=)[^&;#\s]+"
)


def without_controls(text: str) -> str:
    """Replace control characters in untrusted text by a mark.

    >>> without_controls("red" + chr(27) + "[31m")
    'red�[31m'
    """
    return _CONTROLS.sub("\ufffd", text)


def without_secrets(text: str) -> str:
    """Return ``text`` with the credentials of each URL in it taken out.

    >>> without_secrets("https://me:pw@host/a.zip?dl=1&token=abc")
    'https://host/a.zip?dl=1&token=***'
    """
    return _SECRET.sub(r"\1***", _USER.sub("", text))


def timestamp(when: float | None = None) -> str:
    """Return the current time, or ``when`` in seconds since 1970, as UTC in seconds, for records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, passed in the singular.

    >>> counted(1, "graph"), counted(1200, "graph")
    ('1 graph', '1,200 graphs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rough_time(seconds: float) -> str:
    """Return a duration, rounded for people.

    >>> rough_time(95), rough_time(5000), rough_time(400_000)
    ('95 s', '1 h 23 min', '4 days 15 h')
    """
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; ``None`` if none is similar.

    >>> nearest("s3ids", ["s3dis", "paris"])
    's3dis'
    """
    import difflib

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.6)), None)


def in_words(parameters: Mapping[str, Any]) -> str:
    """Return parameters as a caption, without those that are unset.

    >>> in_words({"k": 32, "hops": 16, "limit": None, "knn_rule": "exact"})
    'k = 32 neighbours, 16 hops, k-NN rule: exact'
    """
    words = []
    for name, value in parameters.items():
        if name == "on_error" or value in (None, False, [], ()):
            continue  # unset, or without effect on a picture
        plain = name.replace("_", " ").replace("knn", "k-NN")
        text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        if name == "k":
            words.append(f"k = {value} neighbours")
        elif type(value) is int and name.endswith("s"):
            words.append(f"{value:,} {plain}")
        else:
            words.append(plain if value is True else f"{plain}: {text}")
    return ", ".join(words)


def as_options(parameters: Mapping[str, Any], prefix: str = "") -> str:
    """Parameters as they are typed, those that are unset left out; ``prefix`` begins the keys of ``--set``.

    >>> as_options({"k": 32, "limit": None, "category": ["Bag", "Cap"]})
    '--k 32 --set category=Bag --set category=Cap'
    """
    words: list[str] = []
    for name, value in parameters.items():
        values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        texts = [str(item).lower() if isinstance(item, bool) else str(item) for item in values]
        option = f"{OPTIONS[name]} " if name in OPTIONS else f"--set {prefix}{name}="
        words += [f"{option}{text}" for text in texts]
    return " ".join(words)


def as_values(parameters: Mapping[str, Any]) -> str:
    """Parameters as lists and tables show them, those that are unset left out.

    >>> as_values({"k": 32, "limit": None, "category": ["Bag", "Cap"]})
    'k=32, category=Bag,Cap'
    """
    shown = {name: value for name, value in parameters.items() if value is not None}
    return ", ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"
        for name, value in shown.items()
    )
