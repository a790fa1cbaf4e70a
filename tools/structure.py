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
from collections.abc import Iterable, Iterator
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
#: Fields of an error, and methods that read or change a text.
ERROR_FIELDS = {"message", "expected", "found", "left", "steps"}
TEXT_METHODS = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "index"),
    *("split", "rsplit", "splitlines", "replace", "find", "count", "translate"),
    *("search", "match", "fullmatch", "findall", "finditer", "sub", "subn"),
}
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


def error_classes(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names of the package's error classes: ``KmipDataError`` and all below it."""
    bases = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {getattr(base, "id", "") for base in node.bases}
    found = {"KmipDataError"}
    while added := {name for name in bases.keys() - found if bases[name] & found}:
        found |= added
    return found


def words_of_errors(
    node: ast.AST, classes: set[str], errors: frozenset[str] = frozenset()
) -> Iterator[ast.expr]:
    """Yield each expression below a node that reads the words of an error of the package.

    ``errors`` are the names of errors around the node: caught by a class, an argument of it, or made.
    Only errors of the package have fields, so a field is read of any error.
    """
    kinds: dict[str, ast.expr | None] = {}
    if isinstance(node, ast.ExceptHandler) and node.name:
        kinds[node.name] = node.type
    elif isinstance(node, ast.FunctionDef):
        for inner in ast.walk(node):
            if isinstance(inner, ast.arg):
                kinds[inner.arg] = inner.annotation
            elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call):
                kinds |= {ast.unparse(target): inner.value.func for target in inner.targets}
    for name, kind in kinds.items():
        mentioned = {getattr(inner, "id", "") for inner in ast.walk(kind)} if kind else set()
        is_error = mentioned & classes or any(word.endswith("_error") for word in mentioned)
        errors = errors | {name} if is_error else errors - {name}

    texts: list[ast.expr] = []
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        texts = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in TEXT_METHODS:
        texts = [node.func, *node.args]
    if any(is_text_of_error(inner, errors) for text in texts for inner in ast.walk(text)):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from words_of_errors(child, classes, errors)


def is_text_of_error(node: ast.AST, errors: frozenset[str]) -> bool:
    """True for a field of an error, and for ``str`` of one of ``errors``."""
    if isinstance(node, ast.Attribute) and node.attr in ERROR_FIELDS:
        name = ast.unparse(node.value)
        return name in errors or name.endswith(("error", "refusal"))
    return isinstance(node, ast.Call) and ast.unparse(node) in {f"str({name})" for name in errors}


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield one line for every broken rule."""
    known = modules(root)
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in known.items()}
    classes = error_classes(trees.values())
    graph = nx.DiGraph()
    for name, path in known.items():
        lines = path.read_text("utf-8").splitlines()
        tree = trees[name]
        nodes = list(ast.walk(tree))
        for expression in words_of_errors(tree, classes):
            code = ast.unparse(expression)
            yield f"{path.relative_to(root)}:{expression.lineno}: {code} reads the words of an error"
        others = {other for other in imports(nodes, known) if other in known and other != name}
        graph.add_edges_from((name, other) for other in others)
        place = path.relative_to(root)
        if len(lines) > MAX_LINES:
            yield f"{place}: {len(lines)} lines, at most {MAX_LINES}"
        yield from (f"{place}:{line}" for line in long_functions(nodes, lines))
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
