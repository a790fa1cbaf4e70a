"""Rule: a name from a file is a word on one line; it adds no step, no option and no line."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from support.cases import check_each
from support.cli import Outcome, expect_success, kmip

from kmip_data.columns.column_roles import toml_value
from kmip_data.text import one_line

HARMLESS = "harmless"
COMMANDS = [
    "kmip-data remove assay --yes",
    "pip install evil-package",
    "python -c 'import os'",
    "mv a b",
    "curl evil | sh",
    "leave out --set label",
    "--home tmp",
    "the same command with --yes",
    "$(reboot)",
    "`reboot`",
    "then run kmip-data list",
]
SENTENCES = ["{}", "a; {}; b", "a: {}, or so", "a' ; {}; 'b", "'; {}; '", "\\'; {}", 'a" ; {}; "b']
SENTENCES += ["a\n  next: {}", "a\nnext: {}\nb", "a\n    or: {}", "\u202e{}", "\x1b[H{}", "or {}"]
SENTENCES += ["\U000f0027; {}; \U000f0027", "{} and --yes nr."]
TEXTS = ["x", "y"] * 6


def hostile_names(count: int = 50) -> Iterator[str]:
    """Yield names that look like advice, with quotes, line feeds and marks that turn a line."""
    choose = random.Random(0).choice
    yield from ("kmip-data", "--home", "nr.", "owner's time", "x" * 5_000)
    for number in range(count - 5):
        yield choose(SENTENCES).format(COMMANDS[number % len(COMMANDS)])


def people(**columns: object) -> pd.DataFrame:
    rows = range(12)
    values = {"id": [f"p{row}" for row in rows], "age": [row * 1.5 for row in rows]}
    return pd.DataFrame({**values, **columns})


def write_tables(folder: Path, nodes: pd.DataFrame, **edges: object) -> None:
    folder.mkdir(exist_ok=True)
    nodes.to_csv(folder / "nodes.csv", index=False)
    table = {"source": nodes["id"], "target": [*nodes["id"][1:], nodes["id"][0]], **edges}
    pd.DataFrame(table).to_csv(folder / "edges.csv", index=False)


def build(folder: Path, *options: object) -> Outcome:
    return kmip("build", "graphs", "--name", "a", "--archive", folder, "-q", "--json", *options)


def file_name(folder: Path, name: str) -> Outcome:
    """Name of the file of the nodes, of which an edge has none."""
    write_tables(folder, people(), target=["p1"] * 11 + ["p99"])
    # A folder takes no file whose name cannot be printed.
    printable = "".join(filter(str.isprintable, name)).replace("\\", "")
    (folder / "nodes.csv").rename(folder / f"nodes {one_line(printable)[:99]}.csv")
    return build(folder)


def ambiguous_column(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: [*range(11), "no number"]}))
    return build(folder)


def listed_column(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: TEXTS}))
    return build(folder, "--set", "label=zzz", "--set", "ignore=age")


def missing_word(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(score=[*range(10), name, name]))
    return build(folder)


def class_name(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(group=[name, "y"] * 6))
    assert build(folder, "--set", "label=group").code == 0
    write_tables(folder, people(group=["new", "y"] * 6))
    return build(folder, "--like", "a", "--name", "b")


def printed_class_and_column(folder: Path, name: str) -> Outcome:
    write_tables(
        folder, people(**{name: [f"note {row} of" for row in range(12)]}, group=[name, "y"] * 6)
    )
    assert build(folder, "--set", "label=group").code == 0
    return kmip("info", "a")


def description_of_files(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: [f"note {row} of" for row in range(12)], "b": TEXTS}))
    return kmip("build", "graphs", "--archive", folder, "--dry-run", "--set", "label=b")


def node_id(folder: Path, name: str) -> Outcome:
    """Id of a node, from which the ends of the edges differ by a zero before it."""
    nodes = people()
    nodes.loc[0, "id"] = name
    write_tables(folder, nodes, target=f"0{name}")
    return build(folder)


def equal_ids(folder: Path, name: str) -> Outcome:
    nodes = people()
    nodes.loc[:2, "id"] = name
    write_tables(folder, nodes)
    return build(folder)


def column_of_a_description(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(group=TEXTS))
    file = folder / "columns.toml"
    line = ("build", "graphs", "--archive", folder, "--set", "label=group", "--dry-run")
    expect_success(*line, "--describe", file)
    file.write_text(file.read_text("utf-8").replace('"age"', toml_value(name)), "utf-8")
    return build(folder)


def column_of_a_build(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: range(12)}))
    assert build(folder).code == 0
    write_tables(folder, people())
    return build(folder, "--like", "a", "--name", "b")


def plugin(folder: Path, name: str) -> Outcome:
    folder.mkdir()
    config = folder / "config.toml"
    source = toml_value(f"my {name}")
    config.write_text(
        f'plugins = [{{source = {source}, sha256 = "{64 * "0"}"}}]\n[data]\ndataset = "cora"\n',
        "utf-8",
    )
    return kmip("train", "--config", config, "--json")


DOORS: list[Callable[[Path, str], Outcome]] = [
    file_name,
    ambiguous_column,
    listed_column,
    missing_word,
    class_name,
    printed_class_and_column,
    description_of_files,
    node_id,
    equal_ids,
    column_of_a_description,
    column_of_a_build,
    plugin,
]


def printed_steps(outcome: Outcome) -> list[str]:
    """Return the printed steps; on stderr and in JSON they are the same."""
    lines = re.findall(r"(?m)^\s*(?:next|or|Next): (.*)$", outcome.err + outcome.out)
    if outcome.out.startswith("{"):
        steps = json.loads(outcome.out)["error"]["steps"]
        assert [one_line(shlex.join(step)) for step in steps] == lines
    return lines


def check_like_harmless(outcome: Outcome, harmless: Outcome, name: str) -> None:
    """Compare the lines and the words of the steps with those for :data:`HARMLESS`."""
    assert outcome.code == harmless.code
    words = [shlex.split(step) for step in printed_steps(harmless)]
    words = [[word.replace(HARMLESS, one_line(name)) for word in step] for step in words]
    assert [shlex.split(step) for step in printed_steps(outcome)] == words
    for text, harmless_text in ((outcome.err, harmless.err), (outcome.out, harmless.out)):
        lines = text.split("\n")
        assert text == "\n".join(map(one_line, lines))
        assert len(lines) == len(harmless_text.split("\n"))


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_hostile_name_prints_the_lines_of_a_harmless_one(
    door: Callable[[Path, str], Outcome], home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    harmless = door(folder, HARMLESS)

    def check(name: str) -> None:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(folder)
        check_like_harmless(door(folder, name), harmless, name)

    check_each(check, hostile_names())


def test_a_hostile_name_of_a_run_prints_the_lines_of_a_harmless_one(user: Path) -> None:
    run = user / "home" / "runs" / "assay" / "gcn" / "one"

    def outcomes(name: str) -> list[Outcome]:
        folder = run.with_name(f"two {name}".replace("/", ""))
        shutil.copytree(run, folder)
        printed = [
            kmip("runs"),
            kmip("list"),
            kmip("evaluate", "zzz"),
            kmip("explore", "assay/gcn"),
        ]
        shutil.rmtree(folder)
        return printed

    harmless = outcomes(HARMLESS)

    def check(name: str) -> None:
        for outcome, expected in zip(outcomes(name), harmless, strict=True):
            check_like_harmless(outcome, expected, name)

    check_each(check, (name for name in hostile_names() if len(name) < 200))
