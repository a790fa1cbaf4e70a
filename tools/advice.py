"""Commands that the code advises, and how many of them tests type as printed.

``make lint`` prints both counts and fails if a command is untyped, so that a new command, or one
whose text changed, is typed by a test. Tests note the commands that they type
(``tests/support/typed_advice.py``); ``python -m tools.advice --record`` adds them to the list
``tests/support/typed_advice.txt``, and ``python -m tools.advice --untyped`` prints the others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.structure import ROOT, modules

LIST = ROOT / "tests" / "support" / "typed_advice.txt"  #: commands that tests have typed
NOTES = ROOT / ".pytest_cache" / "advice"  #: folder of notes, one file for each process of tests
PLACEHOLDER = "{}"  #: an expression in a template
WORDS = "{*}"  #: any number of words in a template
PROGRAM = "kmip-data"
COMMAND = re.compile(r"(?<![\w/.-])kmip-data [a-z]")
PROSE = re.compile(r"[;`\n]|,(?!\S)|: | \(| which | again| && ")  #: end of a command
#: Arguments of calls that describe commands without advising them.
NO_ADVICE = {"help", "epilog", "metavar", "short_help", "title"}


def advised_commands(root: Path = ROOT) -> list[tuple[str, str]]:
    """Return module and template of each command in the code, without duplicates."""
    commands = {}
    for name, path in modules(root).items():
        source = path.read_text("utf-8")
        if PROGRAM not in source:
            continue
        for text in advice_texts(ast.parse(source)):
            for template in _commands_in(text):
                commands[name, template] = None
    return list(commands)


def advice_texts(node: ast.AST) -> Iterator[str]:
    """Yield strings, f-strings and commands below a node, without docstrings and help."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.keyword) and node.arg in NO_ADVICE:
        return
    if isinstance(node, ast.JoinedStr | ast.Constant):
        yield _template(node)
        return
    if getattr(getattr(node, "func", None), "id", "") == "Command":
        template = _template(node.args[0])
        values = node.args[1 + template.count(PLACEHOLDER) :]
        yield " ".join([template, *map(_template, values)])
        return
    for child in ast.iter_child_nodes(node):
        yield from advice_texts(child)


def _template(node: ast.AST) -> str:
    """Return the text of a string, with a placeholder for each expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w+\}", PLACEHOLDER, node.value)  # to be formatted
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    return WORDS if isinstance(node, ast.Starred) else PLACEHOLDER


def _commands_in(text: str) -> Iterator[str]:
    """Yield each command of a text, up to a punctuation mark."""
    for part in re.split(rf"(?={COMMAND.pattern})", text)[1:]:
        command = PROSE.split(part)[0].strip()
        if command.removeprefix("kmip-data ").split()[0] in _command_names():
            yield command


def _command_names() -> dict[str, str]:
    from kmip_data.cli.main import COMMANDS

    return COMMANDS


def pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of printed commands, which may have completed options behind their name.

    An expression is one word, or at the end options; further options may follow.
    """
    word = r"(?:'[^']*'|[^\s'-]\S*)"
    program, name, *words = template.split(" ")
    rest = re.escape("".join(f" {word}" for word in words))
    rest = rest.replace(re.escape(f" {WORDS}"), "(?: .+)?")
    rest = rest.replace(re.escape(PLACEHOLDER), f"{word}?")
    if template.endswith(f" {PLACEHOLDER}"):
        rest = rest.removesuffix(f"{word}?") + f"(?:{word}|--.*)"
    options = rf"(?: --[a-z-]+(?: {word})?)*?"
    return re.compile(rf"{program} {re.escape(name)}{options}{rest}(?: --.*)?")


def typed_commands() -> set[tuple[str, str]]:
    """Return module and template of each listed command."""
    lines = LIST.read_text("utf-8").splitlines() if LIST.exists() else []
    pairs = (line.partition(": ") for line in lines)
    return {(module, template) for module, _, template in pairs}


def record() -> None:
    """Add the notes of tests to the list, and drop commands that the code no longer has."""
    typed = typed_commands()
    for file in sorted(NOTES.glob("*.txt")):
        for line in file.read_text("utf-8").splitlines():
            module, _, template = line.partition(": ")
            typed.add((module, template))
    lines = sorted(f"{module}: {template}\n" for module, template in typed & {*advised_commands()})
    LIST.write_text("".join(lines), "utf-8")


def main(options: Sequence[str]) -> int:
    """Print the counts; return 1 if a command is untyped."""
    if "--record" in options:
        record()
    advised = advised_commands()
    typed = typed_commands()
    untyped = [command for command in advised if command not in typed]
    if "--untyped" in options:
        print(*map(": ".join, untyped), sep="\n")  # noqa: T201 -- its output
    counts = f"{len(advised)} commands in the code, {len(advised) - len(untyped)} typed by tests"
    print(f"advice: {counts}")  # noqa: T201
    if not untyped:
        return 0
    print(  # noqa: T201
        f"{len(untyped)} commands are untyped (python -m tools.advice --untyped). Type them in a test, "
        "such as tests/cli/test_typed_advice.py, then run python -m tools.advice --record"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
