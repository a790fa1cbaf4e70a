"""Break product lines one at a time and count how many breaks the tests notice.

``--count 100 --seed 0`` changes one place at a time (a comparison, an operator, a number, a
condition), runs the tests that execute the line, fastest first, until one fails, and puts the file
back. Which tests execute which line, and their seconds, come from one run of all tests, which also
measures branch coverage::

    pip install pytest-cov
    pytest -m "not torture" --cov=kmip_data --cov=pipelines --cov=models --cov=cli --cov-branch \\
        --cov-context=test --durations=0 -vv > tests.log
    python tests/support/mutants.py --log tests.log

``--root`` names another checkout, to compare two commits. Its working tree must be clean. The same
seed chooses the same places in the same tree.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import random
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
BUDGET = 90  #: seconds of tests that one change is given
LIMIT = 400  #: CPU seconds of one process of tests, whatever else the machine does; what hangs is noticed


def places(path: Path) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what can be changed inside the functions of a file, with what replaces it."""
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
                swapped = SWAPS[type(node.ops[0])]()
                yield node, ast.Compare(node.left, [swapped], node.comparators)
            elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS and not is_text(node):
                yield node, ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
            elif isinstance(node, ast.BoolOp):
                yield node, ast.BoolOp(SWAPS[type(node.op)](), node.values)
            elif isinstance(node, ast.Constant) and type(node.value) in {int, bool}:
                changed = not node.value if isinstance(node.value, bool) else node.value + 1
                yield node, ast.Constant(changed)
            elif isinstance(node, ast.If | ast.IfExp | ast.While):
                yield node.test, ast.UnaryOp(ast.Not(), node.test)


def is_text(node: ast.BinOp) -> bool:
    """Return True if a side is text: adding something else to it fails at once."""
    sides = [
        side for side in (node.left, node.right) if isinstance(side, ast.JoinedStr | ast.Constant)
    ]
    return any(not isinstance(getattr(side, "value", None), int | float) for side in sides)


def changed(text: str, node: ast.expr, replacement: ast.expr) -> str:
    """Return the source with one node replaced."""
    data = text.encode()
    starts = [0, *itertools.accumulate(map(len, data.splitlines(keepends=True)))]
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    return (data[:begin] + f"({ast.unparse(replacement)})".encode() + data[end:]).decode()


class Map:
    """Tests that execute each line of one file after another, and the seconds each test takes.

    Work in other processes and in compiled functions is not seen by coverage: such a line has the
    tests that name its module and those of the folder that mirrors its own.
    """

    def __init__(self, root: Path, data: Path, log: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(data))
        self.data.read()
        self.root = root
        self.seconds: Counter[str] = Counter()
        for seconds, test in re.findall(
            r"^([\d.]+)s (?:setup|call) +(\S+)", log.read_text("utf-8"), re.MULTILINE
        ):
            self.seconds[test] += float(seconds)
        files = {test.partition("::")[0] for test in self.seconds}
        self.texts = {
            file: (root / file).read_text("utf-8") for file in files if (root / file).is_file()
        }

    def tests(self, path: Path, line: int) -> list[str]:
        """Return the tests of a line, those of its module and the fastest first: at most a budget of seconds,
        but at least three.
        """
        contexts = {
            number: {name.partition("|")[0] for name in names if name}
            for number, names in self.data.contexts_by_lineno(str(path)).items()
        }
        near = next(
            (contexts[n] for n in range(line, max(line - 20, 0), -1) if contexts.get(n)), set()
        )
        found = near or set().union(*contexts.values())
        if not contexts.get(line):
            name = re.compile(rf"\b{path.stem}\b")
            mirror = self.root / "tests" / path.relative_to(self.root)
            room = next(folder for folder in mirror.parents if folder.is_dir()).relative_to(
                self.root
            )
            files = {
                file
                for file, text in self.texts.items()
                if name.search(text) or Path(file).parent == room
            }
            found = {test for test in self.seconds if test.partition("::")[0] in files}
        subject = path.stem.partition("_")[0]
        tests, spent = [], 0.0
        for test in sorted(
            found,
            key=lambda test: (subject not in test.partition("::")[0], self.seconds[test], test),
        ):
            spent += self.seconds[test]
            if spent > BUDGET and len(tests) >= 3:
                break
            tests.append(test)
        return tests


def noticed(root: Path, tests: list[str]) -> str:
    """Return the first test that fails, or nothing."""
    if not tests:
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (LIMIT, LIMIT))
    options = {
        "cwd": root,
        "capture_output": True,
        "text": True,
        "timeout": 6 * LIMIT,
        "preexec_fn": limit,
    }
    try:
        done = subprocess.run(command, check=False, **options)
    except subprocess.TimeoutExpired:
        return f"more than {6 * LIMIT} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return "" if done.returncode == 0 else failed[1] if failed else f"exit {done.returncode}"


def main() -> None:
    """Break, test, mend; print each place and the count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--data", type=Path, default=Path(".coverage"))
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    root = options.root.resolve()
    status = ["git", "status", "--porcelain", *FOLDERS]
    if subprocess.run(status, cwd=root, capture_output=True, check=True).stdout:
        raise SystemExit("The working tree has changes: commit them first.")
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    found = [(path, *place) for path in files for place in places(path)]
    chosen = random.Random(options.seed).sample(found, options.count)
    known = Map(root, options.data, options.log)
    caught = 0
    for number, (path, node, replacement) in enumerate(chosen, 1):
        before = path.read_text("utf-8")
        try:
            path.write_text(changed(before, node, replacement), "utf-8")
            by = noticed(root, known.tests(path, node.lineno))
        finally:
            path.write_text(before, "utf-8")
        caught += bool(by)
        place = f"{path.relative_to(root)}:{node.lineno}"
        line = f"{number:4} {'caught' if by else 'MISSED'} {place}  {ast.unparse(replacement)[:60]}  {by}"
        print(line, flush=True)  # noqa: T201
    print(f"{caught} of {options.count} caught")  # noqa: T201


if __name__ == "__main__":
    main()
