"""Count tokens, and tokens per line, of Python code.

``python tools/density.py FOLDER…`` prints one line per folder and one for all. Docstrings are not
counted as code; comments that document a field (``#:``) or silence a tool are not counted.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

#: Constructs that put several thoughts on one line, counted per 1,000 non-empty lines.
RATES = (
    "parallel assignments",
    "conditional expressions",
    "comprehensions",
    "found",
    "Any",
    "comments",
)
UNCOUNTED_COMMENTS = ("#:", "#!", "# type:", "# noqa")
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
STATEMENT_STARTS = {None, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}


def measure(path: Path) -> Counter[str]:
    """Count tokens, code lines, filled lines and the constructs of :data:`RATES` in one file."""
    source = path.read_text("utf-8")
    counts = Counter(constructs(ast.parse(source)))
    code_lines = set()
    previous = None

    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            counts["comments"] += not token.string.startswith(UNCOUNTED_COMMENTS)
            continue
        is_docstring = token.type == tokenize.STRING and previous in STATEMENT_STARTS
        if token.type not in LAYOUT and not is_docstring:
            counts["tokens"] += 1
            counts[token.string] += token.string in {"found", "Any"}
            code_lines.add(token.start[0])
        previous = token.type

    counts["code lines"] = len(code_lines)
    counts["filled lines"] = sum(bool(line.strip()) for line in source.splitlines())
    return counts


def constructs(tree: ast.Module) -> Iterator[str]:
    """Yield the name of each construct that puts several thoughts on one line."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple()):
                yield "parallel assignments"
            case ast.IfExp():
                yield "conditional expressions"
            case ast.GeneratorExp() | ast.ListComp() | ast.DictComp() | ast.SetComp():
                yield "comprehensions"


def folder_counts(folder: Path) -> Counter[str]:
    """Return the total counts of all Python files below a folder."""
    total: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        total += measure(path)
    return total


def density(counts: Counter[str]) -> float:
    """Return tokens per line of code."""
    return counts["tokens"] / max(counts["code lines"], 1)


def rates(counts: Counter[str]) -> dict[str, float]:
    """Return every construct of :data:`RATES` per 1,000 filled lines."""
    filled = max(counts["filled lines"], 1)
    return {name: 1000 * counts[name] / filled for name in RATES}


def main(folders: list[Path]) -> None:
    """Print the figures of each folder, and of all folders together."""
    total: Counter[str] = Counter()
    rows = [(str(folder), folder_counts(folder)) for folder in folders]
    for _, counts in rows:
        total += counts
    for name, counts in [*rows, ("all", total)]:
        shown = ", ".join(f"{rate} {value:.1f}" for rate, value in rates(counts).items())
        print(f"{name}: {counts['tokens']:,} tokens, {density(counts):.2f} a code line; {shown}")  # noqa: T201 -- its output


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:] or ("kmip_data", "pipelines", "models", "cli")])
