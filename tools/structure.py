"""Rules of the structure of the code, checked by ``make lint`` (``python -m tools.structure``).

- There are no import cycles. Imports inside functions and ``"module:name"`` in tables count; imports
  for type checkers do not.
- A module has at most 600 lines, a folder at most 15 modules unless all are of one kind.
- A function of more than 90 lines, without its docstring, has a comment ``# Long:`` with the reason.
- A module whose name begins with ``_`` is imported only in its own folder.
- The docstring of a public function that takes arrays, or of its class, has shapes: ``(N, d)``, "any
  shape".
- No code reads the words of an error: no ``in``, ``re``, ``startswith``, ``replace`` and the like on its
  fields or on ``str(error)``. Messages of other libraries, caught by their classes, may be read.
- Rates stay within :data:`LIMITS`: tokens per line, but not lines, and some constructs.
- Commands and options are printed with their change since :data:`BASE`, and fail 10 % above
  :data:`NOW`. Parameters of datasets, which are options of several commands, count once.
- The weight of the checkout stays within bounds that only fall (:mod:`tools.weight`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

from tools import density, weight

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("kmip_data", "pipelines", "models", "cli")
MAX_LINES = 600  #: per module
MAX_MODULES = 15  #: per folder
MAX_FUNCTION_LINES = 90
#: Folders with any number of modules of one kind.
ONE_KIND_FOLDERS = {
    "cli",
    "models/attention/kinds",
    "kmip_data/graphs/encodings",
    "models/search/backends",
}
#: Options of every command, not counted.
COMMON = {"--help", "--home", "--json", "--quiet", "--verbose"}
#: Sizes of commit 8e041a52, for comparison.
BASE = {"commands": 27, "options": 150}
#: Sizes of 29 November 2026, which may grow by :data:`GROWTH`; measure again when they have.
NOW = {"commands": 27, "options": 172}
GROWTH = 0.1
#: Upper bounds. Rates are per 1,000 non-empty lines. Other figures are only printed.
LIMITS = {
    **{name: int(size * (1 + GROWTH)) for name, size in NOW.items()},
    "tokens a code line": 9.0,
    **{f"tokens a code line in {folder}": 9.5 for folder in FOLDERS},
    "parallel assignments": 2,
    "conditional expressions": 18,
    "comprehensions": 28,
    "Any": 10,
}
#: Class of an error of the package, field of one, and method that reads a text.
OWN_ERROR = (
    r"\b(?:KmipDataError|CheckFailed|UsageError|MissingExtra|FolderInUse|SourceUnavailable|NotReproduced"
    r"|DamagedInput|OpenQuestions|LicenseNotAccepted|OutOfResources)\b"
)
ERROR_FIELD = r"(?:error|refusal)\.(?:message|expected|found|left|steps)\b"
READS_TEXT = re.compile(
    r"\.(?:(?:starts|ends)with|remove(?:pre|suf)fix|r?partition|r?split|splitlines|replace|r?find|search"
    r"|match|fullmatch|findall|finditer|subn?)$"
)
#: Annotations of arrays, and shapes such as ``(N,)``, ``(H, N, d)``, ``(G + 1)``, ``(n,)`` and ``()``.
ARRAYS = re.compile(r"\b(Tensor|Array|NDArray|ArrayLike|Integers|Bools|Rows|[FIU]\d{1,2})\b")
SHAPE = re.compile(r"any shape|\([\w…·⌈⌉Σ+\- ]+,[^()]*\)|\((?:[A-Z]|Σ|…)[^()a-z]*\)|\(\)")


def modules(root: Path) -> dict[str, Path]:
    """Return the path of every module by its dotted name."""
    paths = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts if folder == "kmip_data" else ("kmip_data", *parts)
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imports(nodes: list[ast.AST], known: dict[str, Path]) -> Iterator[str]:
    """Yield the names of modules in ``known`` that the nodes of a module import, also inside functions."""
    typing = {
        id(node)
        for test in nodes
        if isinstance(test, ast.If) and getattr(test.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    for node in nodes:
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in known else node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, _ = node.value.partition(":")
            if colon and module in known:  # an entry of a table, imported on use
                yield module


def words_of_errors(node: ast.AST, text: str = ERROR_FIELD) -> Iterator[str]:
    """Yield a line for each expression below a node that reads the words of an error.

    ``text`` is the pattern of such words: fields, and all of an error that a handler caught.
    """
    if isinstance(node, ast.ExceptHandler) and re.search(OWN_ERROR, ast.unparse(node.type)):
        text += rf"|\bstr\({node.name}\)|\b{node.name}\.(?:message|found)\b"
    is_search = isinstance(node, ast.Compare) and " in " in ast.unparse(node)
    is_method = isinstance(node, ast.Call) and READS_TEXT.search(ast.unparse(node.func))
    if (is_search or is_method) and re.search(text, ast.unparse(node)):
        yield f"{node.lineno}: {ast.unparse(node)} reads the words of an error"
    for child in ast.iter_child_nodes(node):
        yield from words_of_errors(child, text)


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield one line for every broken rule."""
    known = modules(root)
    graph = nx.DiGraph()
    for name, path in known.items():
        text = path.read_text("utf-8")
        lines = text.splitlines()
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        others = {other for other in imports(nodes, known) if other in known and other != name}
        graph.add_edges_from((name, other) for other in others)
        place = path.relative_to(root)
        if len(lines) > MAX_LINES:
            yield f"{place}: {len(lines)} lines, at most {MAX_LINES}"
        for line in (*long_functions(nodes, lines), *words_of_errors(tree)):
            yield f"{place}:{line}"
        for function, shaped in array_functions(tree):
            if not shaped:
                yield f"{place}: {function} takes arrays; its docstring has no shape such as (N, d)"
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for other in sorted(others):
            folder, _, last = other.rpartition(".")
            if last.startswith("_") and last != "__main__" and folder != package:
                yield f"{place}: imports {other}, which is private to its folder"
    for folder in sorted({path.parent for path in known.values()}):
        count = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        if count > MAX_MODULES and str(folder.relative_to(root)) not in ONE_KIND_FOLDERS:
            yield f"{folder.relative_to(root)}: {count} modules, at most {MAX_MODULES}"
    for group in nx.strongly_connected_components(graph):
        if len(group) > 1:
            yield f"import cycle: {', '.join(sorted(group))}"


def long_functions(nodes: list[ast.AST], lines: list[str]) -> Iterator[str]:
    """Yield a line for each function that is too long and has no comment with the reason."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            has_text = ast.get_docstring(node, clean=False) is not None
            text = (first.end_lineno or 0) - first.lineno + 1 if has_text else 0
            length = (node.end_lineno or 0) - node.lineno + 1 - text
            comments_and_signature = "\n".join(lines[max(0, node.lineno - 4) : first.lineno])
            if length > MAX_FUNCTION_LINES and "# Long:" not in comments_and_signature:
                yield f"{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def array_functions(
    node: ast.Module | ast.ClassDef, class_text: str = ""
) -> Iterator[tuple[str, bool]]:
    """Yield each public function that takes arrays, and True if a docstring has a shape.

    ``class_text`` is the docstring of the class.
    """
    for inner in node.body:
        if not isinstance(inner, ast.ClassDef | ast.FunctionDef) or inner.name.startswith("_"):
            continue
        text = ast.get_docstring(inner) or ""
        if isinstance(inner, ast.ClassDef):
            yield from array_functions(inner, text)
            continue
        arguments = (*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs)
        kinds = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
        if any(map(ARRAYS.search, kinds)):
            yield inner.name, bool(SHAPE.search(text + class_text))


def sizes(root: Path = ROOT) -> dict[str, float]:
    """Return all figures by name, including those in :data:`LIMITS`."""
    counts = {folder: density.folder_counts(root / folder) for folder in FOLDERS}
    total = sum(counts.values(), Counter())
    by_folder = {
        f"tokens a code line in {folder}": density.density(inner)
        for folder, inner in counts.items()
    }
    return {
        "tokens a code line": density.density(total),
        **by_folder,
        **density.rates(total),
        **command_sizes(),
    }


def exceeded_limits(size_by_name: dict[str, float]) -> Iterator[str]:
    """Yield a line for every size above its limit."""
    for name, limit in LIMITS.items():
        size = size_by_name[name]
        if size > limit:
            yield (
                f"{name}: {round(size, 2):,}, at most {limit:,}; shorten, or measure NOW again and "
                "say why in the commit"
            )


def command_sizes() -> dict[str, int]:
    """Count commands and their parameters; parameters of datasets count once."""
    import click

    from kmip_data.cli.main import root as group
    from kmip_data.cli.shared.dataset_options import DATASET_OPTIONS

    context = click.Context(group)
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    dataset_parameters = {name for options in DATASET_OPTIONS.values() for name in options}
    params = [
        param for command in commands for param in command.params if not COMMON & set(param.opts)
    ]
    command_parameters = sum(param.name not in dataset_parameters for param in params)
    return {"commands": len(commands), "options": command_parameters + len(dataset_parameters)}


if __name__ == "__main__":
    measured = sizes()
    for name, size in measured.items():
        bound = f" at most {LIMITS[name]:,}" if name in LIMITS else ""
        change = f" ({size - BASE[name]:+,})" if name in BASE else ""
        print(f"{name:35} {round(size, 2):>9,}{change}{bound}")  # noqa: T201 -- its output

    broken = [*problems(), *exceeded_limits(measured), *weight.check()]
    print(*broken, sep="\n")  # noqa: T201 -- its output
    sys.exit(bool(broken))
