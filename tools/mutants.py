"""Mutation testing: change one expression at a time, and count the changes that a test catches.

``--count 100 --seed 0`` samples places: comparisons, operators, numbers and conditions. ``reach`` runs
all tests once, and records the tests that execute each place, also in child processes, and the CPU
seconds of each test. ``run`` changes one place at a time, runs the tests that execute it, nearest and
fastest first, until one fails, and restores the file. Both change files, so use a separate clone::

    git clone . ../mutants  # and a virtual environment in ../mutants/.venv
    cd ../mutants
    .venv/bin/python tools/mutants.py reach map.txt -n 3 -m "not torture"
    .venv/bin/python tools/mutants.py run map.txt --log mutants.log

The same seed samples the same places in the same tree. An existing log is continued; delete its
``MISSED`` lines to try these places again. ``reach map.txt FILE`` adds new tests. Limits are CPU
seconds, so that results do not depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import random
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
BUDGET = 90  #: CPU seconds of tests per change
LIMIT = 400  #: CPU seconds of one test process, after which a change is caught as an endless loop
IDLE = 300  #: seconds without CPU use, after which a change is caught as a deadlock
COMPILED = re.compile(r"njit|triton\.jit|compiled")  #: decorators of compiled functions
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: Module that records the places for ``reach``, and a plugin of pytest.
RECORDER = """
import os, resource
import pytest

_seen = set()

def _write(*words):
    with open(os.environ["MUTANTS_MAP"], "a") as file:
        file.write(" ".join(map(str, words)) + chr(10))

def reached(number):
    test = os.environ.get("MUTANTS_TEST")
    if test and (number, test) not in _seen:
        _seen.add((number, test))
        _write(number, test)

def _used():
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in use)

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    before = _used()
    os.environ["MUTANTS_TEST"] = item.nodeid.partition("::")[0]  # fixtures serve a whole file
    yield
    _write("s", round(_used() - before, 3), item.nodeid)

def pytest_runtest_call(item):
    os.environ["MUTANTS_TEST"] = item.nodeid
"""


def places(path: Path) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield expressions inside the functions of a file, with their replacements."""
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
    """Return True if a side is a string: adding anything else to it always fails."""
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


def is_compiled(function: ast.AST) -> bool:
    """Return True if a function is compiled, so that it cannot record tests."""
    return any(COMPILED.search(ast.unparse(mark)) for mark in function.decorator_list)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a tree, except in compiled functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS) and is_compiled(node):
            continue
        if isinstance(node, ast.stmt):
            yield node
        yield from statements(node)


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, including its decorators."""
    return min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", ()))])


def python_functions(path: Path) -> list[ast.stmt]:
    """Return the functions of a module that are not compiled."""
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in statements(tree) if isinstance(node, FUNCTIONS)]


def probe_line(path: Path, line: int) -> int | None:
    """Return the first line of the innermost statement around a line of a Python function, or None."""
    text = path.read_text("utf-8").splitlines()
    inner = [node for function in python_functions(path) for node in function.body]
    inner += [node for statement in inner for node in statements(statement)]
    around = [first_line(node) for node in inner if first_line(node) <= line <= node.end_lineno]
    first_lines = [n for n in around if not text[n - 1].lstrip().startswith(("elif ", "else"))]
    return max(first_lines, default=None)


def probes(path: Path, line: int, modules: list[Path]) -> Iterator[tuple[Path, int]]:
    """Yield the files and lines before which to insert probes for one place.

    For a place in a compiled function, these are all Python functions of its module and of the
    modules that import it.
    """
    innermost = probe_line(path, line)
    if innermost is not None:
        yield path, innermost
        return
    imports = re.compile(rf"^\s*(from|import) .*\b{path.stem}\b", re.MULTILINE)
    for module in modules:
        if module == path or imports.search(module.read_text("utf-8")):
            for function in python_functions(module):
                second = function.body[:2][-1]  # after a docstring
                if first_line(second) > function.lineno:  # not "def f(): ..."
                    yield module, first_line(second)


def reach(chosen: list[tuple[Path, ast.expr, ast.expr]], log: Path, words: list[str]) -> int:
    """Run pytest with ``words``, and record the tests that execute each place; return its exit code."""
    modules = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    numbers: dict[Path, set[tuple[int, int]]] = defaultdict(set)
    for number, (path, node, _) in enumerate(chosen, 1):
        for module, line in probes(path, node.lineno, modules):
            numbers[module].add((line, number))
    recorder = Path(sysconfig.get_path("purelib")) / "mutants_recorder.py"
    before = {path: path.read_text("utf-8") for path in numbers}
    try:
        recorder.write_text(RECORDER, "utf-8")
        for path, probed in numbers.items():
            text = before[path].splitlines(keepends=True)
            for line, number in sorted(probed, reverse=True):
                indent = re.match(r"\s*", text[line - 1])[0]
                call = f"__import__('mutants_recorder').reached({number})\n"
                text.insert(line - 1, indent + call)
            path.write_text("".join(text), "utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "mutants_recorder", *words]
        variables = os.environ | {"MUTANTS_MAP": str(log.resolve())}
        return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    finally:
        recorder.unlink(missing_ok=True)
        for path, text in before.items():
            path.write_text(text, "utf-8")


class Map:
    """Tests that execute each place, and the CPU seconds of each test."""

    def __init__(self, log: Path) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        for line in log.read_text("utf-8").splitlines():
            number, rest = line.split(" ", 1)
            if number == "s":
                seconds, test = rest.split(" ", 1)
                self.seconds[test] = float(seconds)
            else:
                self.tests[number].add(rest)

    def of(self, number: int, path: Path) -> list[str]:
        """Return the tests of a place, then other tests of its module, the fastest first.

        The other tests may use what a fixture or cache executed for the first one. At least three
        tests are returned, and no more than :data:`BUDGET` allows.
        """
        entries = self.tests[str(number)]
        name = re.compile(rf"\b{path.stem}\b")
        mirrors = (ROOT / "tests" / path.relative_to(ROOT)).parents
        mirror = next(folder for folder in mirrors if folder.is_dir())
        near = {
            file
            for file in {test.partition("::")[0] for test in self.seconds}
            if (ROOT / file).parent == mirror or name.search((ROOT / file).read_text("utf-8"))
        }

        def rank(test: str) -> tuple[bool, bool, float, str]:
            file = test.partition("::")[0]
            return test not in entries, file not in near, self.seconds[test], test

        tests = []
        spent = 0.0
        for test in sorted(self.seconds, key=rank):
            file = test.partition("::")[0]
            if test not in entries and file not in entries and file not in near:
                continue
            spent += self.seconds[test]
            if spent > BUDGET and len(tests) >= 3:
                break
            tests.append(test)
        return tests


def used(session: int) -> int:
    """Return the CPU ticks of all running processes of a session."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(words[3]) == session:
            ticks += sum(map(int, words[11:15]))
    return ticks


def noticed(path: Path, tests: list[str]) -> str:
    """Return the first test that fails, or an empty string; timeouts are marked."""
    if not tests:
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        variables = os.environ.copy()
        if "njit" in path.read_text("utf-8"):  # compiled callers contain the old kernel
            variables["NUMBA_CACHE_DIR"] = folder
        process = subprocess.Popen(
            [*command, "-o", "timeout=0", *tests],
            cwd=ROOT,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (LIMIT, LIMIT))
        ticks = -1
        since = time.monotonic()
        while process.poll() is None:
            time.sleep(0.5)
            now = used(process.pid)
            if now != ticks:
                ticks = now
                since = time.monotonic()
            elif time.monotonic() - since > IDLE:
                os.killpg(process.pid, 9)
                return f"idle for {IDLE} s"
        output.seek(0)
        text = output.read()
    if process.returncode == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    late = " by the clock" if "TimeoutExpired" in text or "Timeout >" in text else ""
    return (failed[1] if failed else f"exit {process.returncode}") + late


def run(chosen: list[tuple[Path, ast.expr, ast.expr]], known: Map, log: Path) -> None:
    """Change, test and restore each place that is not in the log, and print the count."""
    log.touch()
    finished = {int(line.split()[0]) for line in log.read_text("utf-8").splitlines()}
    for number, (path, node, replacement) in enumerate(chosen, 1):
        if number in finished:
            continue
        before = path.read_text("utf-8")
        try:
            path.write_text(changed(before, node, replacement), "utf-8")
            by = noticed(path, known.of(number, path))
        finally:
            path.write_text(before, "utf-8")
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        verdict = "caught" if by else "MISSED"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{number:4} {verdict} {place}  {ast.unparse(replacement)[:60]}  {by}\n")
    lines = log.read_text("utf-8").splitlines()
    caught = sum(line.split()[1] == "caught" for line in lines)
    print(f"{caught} of {len(lines)} caught")  # noqa: T201


def main() -> None:
    """Choose the places; record the tests that reach them, or break them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="results, one line per place")
    parser.add_argument("action", choices=("reach", "run"))
    parser.add_argument("map", type=Path)
    options, words = parser.parse_known_args()
    status = ["git", "status", "--porcelain", *FOLDERS]
    if subprocess.run(status, cwd=ROOT, capture_output=True, check=True).stdout:
        raise SystemExit("The working tree has changes: commit them first.")
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    all_places = [(path, *place) for path in files for place in places(path)]
    chosen = random.Random(options.seed).sample(all_places, options.count)
    if options.action == "reach":
        raise SystemExit(reach(chosen, options.map, words))
    if options.log is None:
        parser.error("run needs --log")
    run(chosen, Map(options.map), options.log)


if __name__ == "__main__":
    main()
