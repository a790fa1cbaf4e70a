"""Weight of the checkout, in five sums that only fall (``python -m tools.weight``).

``code`` and ``tests`` count the tokens of their modules, and ``beside`` those of all other modules.
``scripts`` counts the bytes of all other files that run, such as JavaScript and CUDA, and ``docs`` the
words of the pages without decision records. Names of any length weigh the same, as do line breaks and
comments, so shortening them gains nothing.

``tools/weight.toml`` holds a bound for each sum. ``make lint`` fails if a sum exceeds its bound, or if
a bound exceeds an earlier one in the history. ``--lower`` sets bounds to the current sums plus 0.3 %.
While a folder replaces another, ``new = "FOLDER"`` leaves it and its tests out of the sums.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = "tools/weight.toml"
SUMS = ("code", "tests", "scripts", "docs", "beside")
CODE_FOLDERS = ("kmip_data", "pipelines", "models", "cli")
#: Suffixes of files in code and tests that are neither modules nor scripts.
DATA_SUFFIXES = (".typed", ".txt", ".toml", ".md")
ROOM_FOR_MENDS = 3  #: thousandths of a sum that mended bugs may add
#: Length of a string, with quotes, from which it counts as the code that it may hold.
MAX_STRING = 200
LETTERS_PER_TOKEN = 6
LINE_BREAKS = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}
LAYOUT = LINE_BREAKS | {tokenize.COMMENT, tokenize.ENDMARKER}
#: Types of the tokens around an f-string, which is a single token before Python 3.12.
FSTRING_START = getattr(tokenize, "FSTRING_START", None)
FSTRING_END = getattr(tokenize, "FSTRING_END", None)


def count_tokens(source: str) -> int:
    """Count the tokens of a module without layout, comments and docstrings, alike on every Python.

    >>> count_tokens('x = f"{1 + 1}"  # two')
    3
    """
    count = 0
    open_brackets = 0
    open_fstrings = 0
    starts_statement = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        # 1. An f-string is one token, whatever it contains.
        if token.type == FSTRING_START:
            open_fstrings += 1
        if open_fstrings:
            if token.type == FSTRING_END:
                open_fstrings -= 1
                count += open_fstrings == 0
            starts_statement = False
            continue
        # 2. Layout weighs nothing; a comment does not begin or end a statement.
        if token.type in LAYOUT:
            starts_statement |= token.type in LINE_BREAKS
            continue
        # 3. Within brackets, a line may begin with a string that is no docstring.
        if token.type == tokenize.OP:
            open_brackets += (token.string in "([{") - (token.string in ")]}")
        is_string = token.type == tokenize.STRING
        if not (is_string and starts_statement and not open_brackets):
            count += 1
            is_fstring = token.string[:2].lower().startswith(("f", "rf"))
            if is_string and len(token.string) > MAX_STRING and not is_fstring:
                count += len(token.string) // LETTERS_PER_TOKEN
        starts_statement = False
    return count


def files() -> Iterator[str]:
    """Yield the files of the work tree, also new ones, that git does not ignore."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            yield name


def sum_of_file(name: str) -> str | None:
    """Return the sum to which a file belongs, or ``None`` if it weighs nothing.

    >>> [sum_of_file(name) for name in ("cli/main.py", "docs/adr/project.md", "tools/weight.py")]
    ['code', None, 'beside']
    """
    folder = name.partition("/")[0]
    if name.endswith(".py"):
        if folder in CODE_FOLDERS:
            return "code"
        return "tests" if folder == "tests" else "beside"
    if folder in {*CODE_FOLDERS, "tests"}:
        return None if name.endswith(DATA_SUFFIXES) else "scripts"
    is_page = name.startswith("docs/") and name.endswith(".md") and "/adr/" not in name
    return "docs" if is_page or name == "README.md" else None


def weigh(new: str = "") -> Counter[str]:
    """Return the sums, and as ``"new"`` what is in the folder ``new`` and in its tests."""
    sums: Counter[str] = Counter()
    for name in files():
        category = sum_of_file(name)
        if category is None:
            continue
        text = (ROOT / name).read_text("utf-8")
        size = len(text.encode())
        if category == "docs":
            size = len(text.split())
        elif name.endswith(".py"):
            size = count_tokens(text)
        if new and name.startswith((f"{new}/", f"tests/{new}/")):
            category = "new"
        sums[category] += size
    return sums


def git(*words: str) -> str:
    """Return what a git command prints."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def earlier_bounds() -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each commit that changed the bounds, and its bounds."""
    for commit in git("log", "--full-history", "--format=%h", "--", BOUNDS).split():
        if git("ls-tree", commit, BOUNDS):
            yield commit, tomllib.loads(git("show", f"{commit}:{BOUNDS}"))


def exceeded(sums: Mapping[str, int], bounds: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each sum above its bound, and for each bound above an earlier one."""
    for name in SUMS:
        if sums[name] > bounds[name]:
            yield f"{name}: {sums[name]:,}, at most {bounds[name]:,}; delete what the new part replaces"
    for commit, earlier in earlier_bounds():
        for name in SUMS:
            if bounds[name] > earlier.get(name, bounds[name]):
                yield f"{name}: its bound rose from {earlier[name]:,} ({commit}) to {bounds[name]:,}"


def lower(sums: Mapping[str, int], bounds: Mapping[str, int]) -> dict[str, int]:
    """Return bounds of the current sums plus :data:`ROOM_FOR_MENDS`, where that is below ``bounds``."""
    lowered = {}
    for name in SUMS:
        bound = sums[name] + sums[name] * ROOM_FOR_MENDS // 1_000
        lowered[name] = min(bound, bounds.get(name, bound))
    return lowered


def check() -> list[str]:
    """Print the sums with their bounds; return a line for each that is exceeded."""
    bounds = tomllib.loads((ROOT / BOUNDS).read_text("utf-8"))
    new = bounds.pop("new", "")
    sums = weigh(new)
    for name in SUMS:
        print(f"{name:35} {sums[name]:>9,} at most {bounds[name]:,}")  # noqa: T201 -- its output
    if new:
        print(f"{new} replaces another folder, not counted: {sums['new']:,}")  # noqa: T201
    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        print("shallow clone: earlier bounds are unknown (git fetch --unshallow)")  # noqa: T201
    return list(dict.fromkeys(exceeded(sums, bounds)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--lower"]:
        written = tomllib.loads((ROOT / BOUNDS).read_text("utf-8"))
        lines = [f"{name} = {bound:_}\n" for name, bound in lower(weigh(), written).items()]
        (ROOT / BOUNDS).write_text("".join(lines), "utf-8")
    print(*check(), sep="\n")  # noqa: T201 -- its output
