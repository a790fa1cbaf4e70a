"""Break product lines one at a time and count how many breaks the tests notice.

``python tests/support/mutants.py --count 100 --seed 0`` changes one place at a time (a comparison, an
operator, a number, a condition), runs the tests of that room until one fails, and puts the file back. The
working tree must be clean. The same seed chooses the same places in the same tree.
"""

from __future__ import annotations

import argparse
import ast
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
LIMIT = 600  #: seconds of one run of tests; a mutant that hangs is noticed


def places(path: Path) -> Iterator[tuple[ast.expr | ast.Return, ast.expr]]:
    """Yield what can be changed inside the functions of a file, with what replaces it."""
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
                swapped = SWAPS[type(node.ops[0])]()
                yield node, ast.Compare(node.left, [swapped], node.comparators)  # type: ignore[list-item]
            elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not is_text(node):
                yield node, ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)  # type: ignore[arg-type]
            elif isinstance(node, ast.BoolOp):
                yield node, ast.BoolOp(SWAPS[type(node.op)](), node.values)  # type: ignore[arg-type]
            elif isinstance(node, ast.Constant) and type(node.value) in {int, bool}:
                changed = not node.value if isinstance(node.value, bool) else node.value + 1
                yield node, ast.Constant(changed)
            elif isinstance(node, ast.If | ast.IfExp | ast.While):
                yield node.test, ast.UnaryOp(ast.Not(), node.test)


def is_text(node: ast.BinOp) -> bool:
    """Return True if a side is text: adding something else to it fails at once."""
    sides = [side for side in (node.left, node.right) if isinstance(side, ast.JoinedStr | ast.Constant)]
    return any(not isinstance(getattr(side, "value", None), int | float) for side in sides)


def changed(text: str, node: ast.expr | ast.Return, replacement: ast.expr) -> str:
    """Return the source with one node replaced."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
    data = text.encode()
    return (data[:begin] + f"({ast.unparse(replacement)})".encode() + data[end:]).decode()


def tests_of(path: Path) -> list[str]:
    """Return the tests of a file's room: the folder that mirrors its own, or the nearest one above."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    named = [str(found) for found in (ROOT / "tests" / parts[0]).rglob(f"test_{parts[-1]}.py")]
    for depth in range(len(parts) - 1, 0, -1):
        folder = ROOT / "tests" / Path(*parts[:depth])
        if folder.is_dir():
            return [*named, str(folder)]
    return [str(ROOT / "tests")]


def noticed(path: Path, jobs: int) -> bool:
    """Run the tests of a room until one fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        str(jobs),
        "-m",
        "not torture",
        *tests_of(path),
    ]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in {0, 5}


def main() -> None:
    """Break, test, mend; print each place and the count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    status = ["git", "status", "--porcelain", *FOLDERS]
    if subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout:
        raise SystemExit("The working tree has changes: commit them first.")
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    found = [(path, *place) for path in files for place in places(path)]
    caught = 0
    for number, (path, node, replacement) in enumerate(
        random.Random(options.seed).sample(found, options.count)
    ):
        before = path.read_text("utf-8")
        try:
            path.write_text(changed(before, node, replacement), "utf-8")
            seen = noticed(path, options.jobs)
        finally:
            path.write_text(before, "utf-8")
        caught += seen
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        line = f"{number + 1:4} {'caught' if seen else 'MISSED'} {place}  {ast.unparse(replacement)[:60]}"
        print(line, flush=True)  # noqa: T201
    print(f"{caught} of {options.count} caught")  # noqa: T201


if __name__ == "__main__":
    main()
