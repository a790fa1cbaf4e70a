"""Text of messages: cleaned, counted, rounded and quoted."""

from __future__ import annotations

import os
import re
import shlex
import time
import urllib.parse
from collections.abc import Iterable, Mapping

#: Parameters of datasets that are options of commands; ``--set KEY=VALUE`` takes the others.
OPTIONS = {name: f"--{name}" for name in ("k", "limit", "place", "images", "masks", "like")}
OPTIONS |= {
    name: f"--{name.replace('_', '-')}" for name in ("split_rule", "split_seed", "test_area")
}
#: Endings of the names of runs that one command trained, one for each fold and seed; a pattern.
OF_ONE_COMMAND = r"(-fold\d+)?(-seed\d+)?"
#: Characters that a terminal obeys (C0 but tab and line feed, DEL, C1, marks that reorder text),
#: and halves of surrogate pairs, as in file names that are not UTF-8, which cannot be encoded.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Address. Its scheme has a bounded length: without the bound 100,000 letters take 25 s.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,2}[^\s'\"<>]+")
#: User and password before the host of an address, also where ``Path`` has removed a slash, or as
#: ssh writes them.
_LOGIN = re.compile(
    r"(?<=:/)(/?)[^\s/'\"<>@]{1,999}@|()(?<![^\s/'\"<>])[^\s/'\"<>:@]{1,99}:[^\s'\"<>@]{1,999}@(?=[\w.-]+:)"
)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_HOST = re.compile(r"(?:[^:\[\]]*|\[[^\]]*\])(?::\d*)?")  #: with a port, but without a user
_REQUEST = re.compile(r"(?<=url: )(/[^\s?#]*)[?#]\S*")  #: path of a request, as requests quotes it


def replace_controls(text: str) -> str:
    """Replace control characters in untrusted text by a mark.

    >>> replace_controls("red" + chr(27) + "[31m")
    'red�[31m'
    """
    return _CONTROLS.sub("\ufffd", text)


def strip_logins(text: str) -> str:
    """Return text without the users and passwords of addresses in it, also of those taken for paths.

    >>> strip_logins("no https:/me:pw@host/a, no me:pw@host:/b, but me@host:/c")
    'no https:/host/a, no host:/b, but me@host:/c'
    """
    return _LOGIN.sub(r"\1", text)


def is_address(path: str | os.PathLike[str]) -> bool:
    """True if a text is an address (``s3://bucket/name``), not a folder or a name."""
    return re.match(r"[a-z][a-z0-9+.-]+://", os.fspath(path)) is not None


def address_without_secrets(address: str) -> str:
    """Return an address as it may be shown: without user, password, query and fragment.

    Paths of folders are returned as they are.

    >>> address_without_secrets("https://me:pw@host:80/a.zip?token=abc#key")
    'https://host:80/a.zip'
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    head = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in head:
        rest = rest[head.rindex("@") + 1 :]
    elif _HOST.fullmatch(head) is None:  # a password that has one of / ? # in it
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"


def strip_secrets(text: str, address: str = "") -> str:
    """Return ``text`` with each address in it as :func:`address_without_secrets` has it.

    Secrets of ``address`` are masked wherever they stand: other libraries quote parts of what they
    ask for.

    >>> strip_secrets("no answer of https://me:pw@host/a.zip?dl=1, again pw-1", "s3://key:pw-1@bucket")
    'no answer of https://host/a.zip, again ***'
    """
    for secret in sorted(_secrets_of_address(address), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _ADDRESS.sub(
        lambda match: _shown_address(match[0]) + _trailing_punctuation(match[0]), text
    )
    return strip_logins(_REQUEST.sub(r"\1", text))


def _shown_address(address: str) -> str:
    """Return an address as it may be shown, also one that has one slash left, as a path has it."""
    scheme, slashes, rest = re.split("(:/{1,2})", address, maxsplit=1)
    return address_without_secrets(f"{scheme}://{rest}").replace("://", slashes, 1)


def _trailing_punctuation(address: str) -> str:
    """Return the punctuation that follows a query or fragment, which is not part of either."""
    if "?" not in address and "#" not in address:
        return ""
    without_ending = address.rstrip("),.;:")
    return address[len(without_ending) :]


def _secrets_of_address(address: str) -> set[str]:
    """Return the passwords, tokens and query values of an address, as given and percent-decoded."""
    rest = address.partition("://")[2]
    shown = address_without_secrets(address).partition("://")[2]
    if rest == shown:
        return set()

    # 1. User and password, up to each character that a parser may read as their end.
    user = rest
    if shown:
        user = rest[: rest.find(shown)].rstrip("@")
    secrets = {user, *re.split("[:/?#@]", user)}
    # 2. Pairs of query and fragment, and their values.
    for pair in re.split("[?#&;]", rest.partition(shown)[2])[1:]:
        secrets |= {pair, pair.partition("=")[2]}
    # 3. All of them decoded and encoded, too; shorter ones occur everywhere.
    secrets |= {urllib.parse.unquote_plus(secret) for secret in secrets}
    secrets |= {urllib.parse.quote(secret, safe="") for secret in secrets}
    return {secret for secret in secrets if len(secret) > 3}


def timestamp(when: float | None = None) -> str:
    """Return the current time, or ``when`` in seconds since 1970, as UTC in seconds, for records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def count_with_noun(count: int, noun: str) -> str:
    """Return a number with its noun, passed in the singular.

    >>> count_with_noun(1, "graph"), count_with_noun(1200, "graph")
    ('1 graph', '1,200 graphs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration, rounded for people.

    >>> format_duration(95), format_duration(5000), format_duration(400_000)
    ('95 s', '1 h 23 min', '4 days 15 h')
    """
    minutes = round(seconds / 60)
    hours = round(seconds / 3600)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} days {hours % 24} h"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; ``None`` if there is no similar one."""
    return next(iter(nearest_names(name, known)), None)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three known names, the most similar or longer ones, in any case.

    Where one is a slip of the finger away, others that are merely similar are left out.

    >>> nearest_names("S3IDS", ["s3dis", "paris"])
    ['s3dis']
    >>> nearest_names("eraly", ["s3dis/gcn/early", "s3dis/gcn/late"])
    ['s3dis/gcn/early']
    """
    import difflib

    # A name is compared with as many last parts of a path as it has.
    parts = name.count("/") + 1
    spellings = {"/".join(word.lower().split("/")[-parts:]): word for word in known}
    name = name.lower()
    candidates = difflib.get_close_matches(name, spellings, n=3, cutoff=0.6)
    slips = [candidate for candidate in candidates if is_likely_typo(name, candidate)]
    candidates = slips or candidates
    if len(name) > 2:
        candidates += [longer for longer in spellings if longer.startswith(name)]
    return [spellings[candidate] for candidate in dict.fromkeys(candidates)][:3]


def missing_attribute_message(module: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that a module lacks, with the nearest one that it has.

    >>> missing_attribute_message("kmip_data", "PeptidesFnc", ["PeptidesFunc", "ZINC"])
    'kmip_data has no PeptidesFnc. Did you mean kmip_data.PeptidesFunc?'
    """
    close = nearest_name(name, known)
    hint = f" Did you mean {module}.{close}?" if close else ""
    return f"{module} has no {name}.{hint}"


def is_likely_typo(name: str, known: str) -> bool:
    """True if a name is surely a misspelling of a known one, so that its command can be printed.

    Numbers are never taken for misspelled.

    >>> is_likely_typo("epoch", "epochs"), is_likely_typo("split", "limit"), is_likely_typo("rwse2000", "rwse20")
    (True, False, False)
    """
    import difflib

    if re.findall(r"\d+", name) != re.findall(r"\d+", known):
        return False
    if len(name) > 2 and sorted(name.lower()) == sorted(known.lower()):  # letters out of order
        return True
    return difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio() >= 0.75


def dataset_name_from(text: str) -> str:
    """Return a name of a dataset or a run that resembles a text; empty if it has no letter or digit.

    >>> dataset_name_from("my data (2)")
    'my-data-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-_.")[:63].rstrip("-_.")


def natural_sort_key(text: str) -> list[str | float]:
    """Return a key that sorts numbers in texts by value.

    >>> sorted(["k=10", "k=100", "k=3"], key=natural_sort_key)
    ['k=3', 'k=10', 'k=100']
    """
    parts: list[str | float] = list(_NUMBER.split(text))
    parts[1::2] = map(float, parts[1::2])
    return parts


def parameters_as_options(parameters: Mapping[str, object], prefix: str = "") -> str:
    """Return parameters as options on the command line, without unset ones.

    ``prefix`` begins the keys of ``--set``.

    >>> parameters_as_options({"k": 32, "limit": None, "category": ["Bag", "Cap"]})
    '--k 32 --set category=Bag --set category=Cap'
    """
    words = []
    for name, value in parameters.items():
        if value is None:
            continue
        option = f"{OPTIONS[name]} " if name in OPTIONS else f"--set {prefix}{name}="
        for item in value if isinstance(value, (list, tuple)) else [value]:
            text = str(item).lower() if isinstance(item, bool) else str(item)
            words.append(f"{option}{shlex.quote(text)}")
    return " ".join(words)


def format_parameters(parameters: Mapping[str, object]) -> str:
    """Return parameters for lists and tables, without unset and empty ones.

    >>> format_parameters({"k": 32, "limit": None, "class_name": [], "category": ["Bag", "Cap"]})
    'k=32, category=Bag,Cap'
    """
    shown = []
    for name, value in parameters.items():
        if value in (None, [], (), ""):
            continue
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        shown.append(f"{name}={text}")
    return ", ".join(shown)


def human_bytes(count: float) -> str:
    """Return bytes for people, decimal: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
