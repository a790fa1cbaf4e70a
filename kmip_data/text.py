"""Formatting of messages: masking of secrets, counts, durations, suggestions, options."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

#: Dataset parameter -> command-line option; all others are set with ``--set KEY=VALUE``.
PARAMETER_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "k",
        "limit",
        "place",
        "images",
        "masks",
        "like",
        "split_rule",
        "split_seed",
        "test_area",
    )
}
ZERO_TOLERANCE = 1e-12  #: largest magnitude of a label that is shown as 0
TEXT_WIDTH = 80  #: maximum width of a printed table in characters
MAX_NAME_LETTERS = 26  #: letters of a name in a picture
#: Pattern of the suffixes by which one command names its runs of several folds and seeds.
RUN_NAME_SUFFIXES = r"(-fold\d+)?(-seed\d+)?"
#: Characters that control a terminal (C0 except tab, DEL, C1, bidirectional marks), and lone
#: surrogates, which occur in file names that are not UTF-8 and cannot be encoded.
_CONTROLS = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: URL, with a bounded scheme: without the bound, 100,000 letters take 25 s to match.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,2}[^\s'\"<>]+")
#: User and password before a host, in a URL, in a URL that lost a slash in ``Path``, or as in ssh.
_LOGIN = re.compile(
    r"(?<=:/)(/?)[^\s/'\"<>@]{1,999}@|()(?<![^\s/'\"<>])[^\s/'\"<>:@]{1,99}:[^\s'\"<>@]{1,999}@(?=[\w.-]+:)"
)
_HOST = re.compile(r"(?:[^:\[\]]*|\[[^\]]*\])(?::\d*)?")  #: host and port, without a user
_REQUEST = re.compile(r"(?<=url: )(/[^\s?#]*)[?#]\S*")  #: path quoted in errors of ``requests``


def one_line(text: str) -> str:
    """Replace line feeds and control characters in untrusted text by U+FFFD.

    >>> one_line("red" + chr(27) + "[31m" + chr(10))
    'red�[31m�'
    """
    return _CONTROLS.sub("\ufffd", text)


def python_literal(name: str) -> str:
    r"""Quote a name from a file for Python code, as one quoted name.

    >>> print(python_literal("owner's.pt"))
    'owner\x27s.pt'
    """
    letters = "".join(repr(letter)[1:-1] for letter in name)
    return "'{}'".format(letters.replace("'", r"\x27"))


def strip_logins(text: str) -> str:
    """Remove users and passwords from all addresses in ``text``, even if they lost a slash.

    >>> strip_logins("no https:/me:pw@host/a, no me:pw@host:/b, but me@host:/c")
    'no https:/host/a, no host:/b, but me@host:/c'
    """
    return _LOGIN.sub(r"\1", text)


def address_without_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment; paths stay unchanged.

    >>> address_without_secrets("https://me:pw@host:80/a.zip?token=abc#key")
    'https://host:80/a.zip'
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    head = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in head:
        rest = rest[head.rindex("@") + 1 :]
    elif _HOST.fullmatch(head) is None:  # a password that contains / ? or #
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"


def strip_secrets(text: str, address: str = "") -> str:
    """Return ``text`` with :func:`address_without_secrets` applied to each address in it.

    Secrets of ``address`` are masked wherever they occur, because libraries quote parts of their
    requests in errors.

    >>> strip_secrets("no answer of https://me:pw@host/a.zip?dl=1, again pw-1", "s3://key:pw-1@bucket")
    'no answer of https://host/a.zip, again ***'
    """
    for secret in sorted(_secrets_of_address(address), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _ADDRESS.sub(
        lambda match: _mask_address(match[0]) + _trailing_punctuation(match[0]), text
    )
    return strip_logins(_REQUEST.sub(r"\1", text))


def _mask_address(address: str) -> str:
    """Return an address without secrets, even if it lost a slash when it was taken for a path."""
    scheme, slashes, rest = re.split("(:/{1,2})", address, maxsplit=1)
    return address_without_secrets(f"{scheme}://{rest}").replace("://", slashes, 1)


def _trailing_punctuation(address: str) -> str:
    """Return the punctuation after a query or fragment, which belongs to the sentence."""
    if "?" not in address and "#" not in address:
        return ""
    without_ending = address.rstrip("),.;:")
    return address[len(without_ending) :]


def _secrets_of_address(address: str) -> set[str]:
    """Return the passwords, tokens and query values of an address, plain and percent-encoded."""
    rest = address.partition("://")[2]
    shown = address_without_secrets(address).partition("://")[2]
    if rest == shown:
        return set()

    # 1. User and password, split at every character that a parser may take for their end.
    user = rest
    if shown:
        user = rest[: rest.find(shown)].rstrip("@")
    secrets = {user, *re.split("[:/?#@]", user)}
    # 2. Key-value pairs of query and fragment, and their values.
    for pair in re.split("[?#&;]", rest.partition(shown)[2])[1:]:
        secrets |= {pair, pair.partition("=")[2]}
    # 3. Decoded and encoded forms. Strings of up to three characters occur everywhere by chance.
    secrets |= {urllib.parse.unquote_plus(secret) for secret in secrets}
    secrets |= {urllib.parse.quote(secret, safe="") for secret in secrets}
    return {secret for secret in secrets if len(secret) > 3}


#: Message of Python or numpy about untrusted content -> words about the content.
_PYTHON_PROBLEMS = {
    r"maximum recursion depth exceeded.*": "it is nested too deeply",
    r"zip\(\) argument \d+ is (?:shorter|longer) than .*": "lists of it have different lengths",
    r"(?:not enough|too many) values to unpack.*": "a list of it has another length than expected",
    r".*(?:int|integer) (?:-?\d+ )?(?:too (?:large|big)|out of bounds).*": "a number of it is too large",
    r"Exceeds the limit \(\d+ digits\) for integer string conversion.*": "a number of it is too large",
    r"cannot (?:fit|convert).* (?:into|to) .*integer.*": "a number of it is too large",
    r".*index (?:-?\d+ )?(?:is )?out of (?:range|bounds).*": "it has fewer values than expected",
    r".*'\w+' object .*": "it has another structure than expected",
    r".*(?:indices must be|unhashable type|unsupported operand|not supported between|positional arg).*": (
        "it has another structure than expected"
    ),
    r"'([\w-]+)' codec can't decode byte (0x[0-9a-f]+) .*": r"it is not text in \1: byte \2",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"could not convert string to float: (.*)": r"\1 is not a number",
}


def reword_python_problem(problem: str) -> str:
    """Reword a message of Python's about untrusted content; return any other message unchanged.

    >>> reword_python_problem("zip() argument 2 is shorter than argument 1")
    'lists of it have different lengths'
    >>> reword_python_problem("line 3 has two signs")
    'line 3 has two signs'
    """
    for pattern, words in _PYTHON_PROBLEMS.items():
        if match := re.fullmatch(pattern, problem):
            return match.expand(words)
    return problem


def timestamp(unix_seconds: float | None = None) -> str:
    """Return a time, by default the current one, as ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_seconds))


def count_with_noun(count: int, noun: str) -> str:
    """Return a count with its noun, which is passed in the singular.

    >>> count_with_noun(1, "graph"), count_with_noun(1200, "graph")
    ('1 graph', '1,200 graphs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Format a duration, rounded to two units.

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
    """Return the known name most similar to ``name``, or ``None`` if there is no similar one."""
    return next(iter(nearest_names(name, known)), None)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that resemble ``name`` or begin with it, ignoring case.

    If one is a likely typo, names that are merely similar are left out.

    >>> nearest_names("S3IDS", ["s3dis", "paris"])
    ['s3dis']
    >>> nearest_names("eraly", ["s3dis/gcn/early", "s3dis/gcn/late"])
    ['s3dis/gcn/early']
    """
    import difflib

    # Compare as many trailing path components as the name has.
    depth = name.count("/") + 1
    spellings = {"/".join(word.lower().split("/")[-depth:]): word for word in known}
    name = name.lower()
    candidates = difflib.get_close_matches(name, spellings, n=3, cutoff=0.6)
    typos = [candidate for candidate in candidates if is_likely_typo(name, candidate)]
    candidates = typos or candidates
    if len(name) > 2:
        candidates += [spelling for spelling in spellings if spelling.startswith(name)]
    return [spellings[candidate] for candidate in dict.fromkeys(candidates)][:3]


def missing_attribute_message(module: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a missing attribute of a module, with the nearest existing one.

    >>> missing_attribute_message("kmip_data", "PeptidesFnc", ["PeptidesFunc", "ZINC"])
    'kmip_data has no PeptidesFnc. Did you mean kmip_data.PeptidesFunc?'
    """
    close = nearest_name(name, known)
    hint = f" Did you mean {module}.{close}?" if close else ""
    return f"{module} has no {name}.{hint}"


def is_likely_typo(name: str, known: str) -> bool:
    """True if ``name`` is close enough to ``known`` to print a corrected command.

    Names with different numbers are never typos of each other, nor are a name and its negation.

    >>> is_likely_typo("epoch", "epochs"), is_likely_typo("split", "limit"), is_likely_typo("rwse2000", "rwse20")
    (True, False, False)
    >>> is_likely_typo("directed", "undirected"), is_likely_typo("open", "no-open")
    (False, False)
    """
    import difflib

    for negation in ("un", "no-", "no_", "non-"):
        if name == negation + known or known == negation + name:
            return False
    if re.findall(r"\d+", name) != re.findall(r"\d+", known):
        return False
    is_transposed = len(name) > 2 and sorted(name.lower()) == sorted(known.lower())
    return (
        is_transposed or difflib.SequenceMatcher(None, name.lower(), known.lower()).ratio() >= 0.75
    )


def dataset_name_from(text: str) -> str:
    """Turn ``text`` into a valid name of a dataset or run; empty if it has no letter or digit.

    >>> dataset_name_from("my data (2)")
    'my-data-2'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-_.")[:63].rstrip("-_.")


def values_of(value: object) -> list[object]:
    """Return the values of a key: those of a list, one, or none."""
    if isinstance(value, list | tuple):
        return [*value]
    return [] if value is None else [value]


def option_words(parameters: Mapping[str, object], prefix: str = "") -> list[str]:
    """Return parameters as words of a command line, leaving out those that are ``None``.

    ``prefix`` is put before the keys of ``--set``.

    >>> option_words({"k": 32, "limit": None, "category": ["Bag", "Cap"]})
    ['--k', '32', '--set', 'category=Bag', '--set', 'category=Cap']
    """
    words = []
    for name, value in parameters.items():
        for item in values_of(value):
            text = str(item).lower() if isinstance(item, bool) else str(item)
            if name in PARAMETER_OPTIONS:
                words += [PARAMETER_OPTIONS[name], text]
            else:
                words += ["--set", f"{prefix}{name}={text}"]
    return words


def format_parameters(parameters: Mapping[str, object]) -> str:
    """Format parameters for lists and tables by name, leaving out unset and empty ones.

    >>> format_parameters({"k": 32, "limit": None, "class_name": [], "category": ["Bag", "Cap"]})
    'category=Bag,Cap, k=32'
    """
    shown = []
    for name, value in sorted(parameters.items()):
        if value in (None, [], (), ""):
            continue
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        shown.append(f"{name}={text}")
    return ", ".join(shown)


def list_names(names: Iterable[str], max_characters: int = 500, *, separator: str = ", ") -> str:
    """Return as many whole names as fit, and the number of the others.

    >>> list_names(["source", "target", "weight"], 12)
    'source, and 2 more'
    """
    names = [shorten_middle(one_line(name), max_characters) for name in names]
    shown = names[:1]
    length = len(separator.join(shown))
    for name in names[1:]:
        length += len(separator) + len(name)
        if length > max_characters:
            break
        shown.append(name)
    listed = separator.join(shown)
    others = len(names) - len(shown)
    return f"{listed}{separator}and {others:,} more" if others else listed


def human_bytes(count: float) -> str:
    """Format a number of bytes in decimal units: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return "1,000 TB or more"


def round_length(max_length: float) -> float:
    """Return the largest 1, 2 or 5 times a power of ten up to ``max_length``.

    >>> round_length(730.0), round_length(1_000.0)
    (500.0, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(max_length))
    return max(step * power for step in (1, 2, 5) if step * power <= max_length)


def format_length(metres: float) -> str:
    """Format a length in metres or kilometres.

    >>> format_length(500.0), format_length(2_000.0)
    ('500 m', '2 km')
    """
    return f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"


def shorten_middle(name: str, letters: int = MAX_NAME_LETTERS) -> str:
    """Shorten a long name in its middle, because names often differ at the end.

    >>> shorten_middle("a very long name of a class, number 17")
    'a very long n…ss, number 17'
    """
    half = letters // 2
    return name if len(name) <= letters else f"{name[:half]}…{name[-half:]}"


def number_text(number: float) -> str:
    """Format a number with three digits; rounding errors of zero become 0.

    >>> number_text(-1.11e-16), number_text(0.12345), number_text(math.nan)
    ('0', '0.123', 'nan')
    """
    return f"{0 if abs(number) <= ZERO_TOLERANCE else number:.3g}"


def range_of_sizes(nodes: Iterable[int], most_drawn: int, noun: str = "node") -> str:
    """Return the range and median of the graphs' nodes as a sentence, and that small ones are drawn.

    The sentence holds for a sample or part too: it is about the graphs of the build.

    >>> range_of_sizes([14, 700, 4_994], 48)
    ' Graphs here have 14 to 4,994 nodes, half of them at most 700; small ones are shown.'
    """
    sizes = sorted(nodes)
    if sizes[0] == sizes[-1]:
        return ""
    median = sizes[(len(sizes) - 1) // 2]
    choice = "; small ones are shown" * int(2 * most_drawn < median)
    limits = f"{sizes[0]:,} to {sizes[-1]:,} {noun}s, half of them at most {median:,}"
    return f" Graphs here have {limits}{choice}."


def class_name(number: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has no name; negative means no class."""
    if number < 0:
        return "no class"
    return names[number] if number < len(names) else f"class {number}"
