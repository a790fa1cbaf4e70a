"""Rule: a name from a file is one quoted word on one line; it adds no step, line or option."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from support.cases import check_each
from support.cli import Outcome, expect_success, kmip

from kmip_data.columns.column_roles import toml_value
from kmip_data.text import one_line

HARMLESS = "harmless"
_COMMANDS = [
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
_LINES = [
    "{}",
    "a; {}; b",
    "a: {}, or so",
    "a' ; {}; 'b",
    'a" ; {}; "b',
    "\n  next: {}",
    "a\nnext: {}\n",
]
_LINES += ["\u202e{}", "\x1b[2J{}", "or {}", "a\r    or: {}", "'; {}; '", "\\'; {}", "nr. {}."]


def hostile_names(count: int = 50) -> Iterator[str]:
    """Yield names that look like advice, with quotes, line feeds and marks that turn a line."""
    choose = random.Random(0).choice
    yield "owner's time"
    yield "x" * 5_000
    for number in range(count - 2):
        yield choose(_LINES).format(_COMMANDS[number % len(_COMMANDS)])


def write_tables(folder: Path, nodes: pd.DataFrame, **edges: object) -> None:
    folder.mkdir(exist_ok=True)
    nodes.to_csv(folder / "nodes.csv", index=False)
    table = {"source": nodes["id"], "target": [*nodes["id"][1:], nodes["id"][0]], **edges}
    pd.DataFrame(table).to_csv(folder / "edges.csv", index=False)


def people(**columns: object) -> pd.DataFrame:
    rows = range(12)
    values = {"id": [f"p{row}" for row in rows], "age": [row * 1.5 for row in rows]}
    return pd.DataFrame({**values, **columns})


def build(folder: Path, *options: object) -> Outcome:
    return kmip("build", "graphs", "--name", "a", "--archive", folder, "-q", "--json", *options)


TEXTS = ["x", "y"] * 6


def file_name(folder: Path, name: str) -> Outcome:
    """An end of an edge that is no node, where the file of the nodes has the name."""
    write_tables(folder, people(), target="p99")
    (folder / "nodes.csv").rename(folder / f"nodes {name[:200]}.csv")
    return build(folder)


def ambiguous_column(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: [*range(11), "no number"]}))
    return build(folder)


def label_column(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: TEXTS}))
    return build(folder, "--set", "label=agee")


def missing_word(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(score=[*range(10), name, name]))
    return build(folder)


def class_name(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(group=[name, "y"] * 6))
    assert build(folder, "--set", "label=group").code == 0
    write_tables(folder, people(group=["new", "y"] * 6))
    return build(folder, "--like", "a", "--name", "b")


def shown_class(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(group=[name, "y"] * 6))
    assert build(folder, "--set", "label=group").code == 0
    return kmip("info", "a")


def shown_columns(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: [f"note {row} of" for row in range(12)], "b": TEXTS}))
    return kmip("build", "graphs", "--archive", folder, "--dry-run", "--set", "label=b")


def node_id(folder: Path, name: str) -> Outcome:
    """Ends of edges that differ from a node's id by zeros before it."""
    nodes = people()
    nodes.loc[0, "id"] = name
    write_tables(folder, nodes, target=f"0{name}")
    return build(folder)


def equal_ids(folder: Path, name: str) -> Outcome:
    nodes = people()
    nodes.loc[:2, "id"] = name
    write_tables(folder, nodes)
    return build(folder)


def described_column(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(group=TEXTS))
    file = folder.with_suffix(".toml")
    line = ("build", "graphs", "--archive", folder, "--set", "label=group", "--dry-run")
    expect_success(*line, "--describe", file)
    text = file.read_text("utf-8")
    file.write_text(text.replace('"age"', toml_value(name)), "utf-8")
    assert tomllib.loads(file.read_text("utf-8"))
    return build(folder, "--like", file)


def column_of_a_build(folder: Path, name: str) -> Outcome:
    write_tables(folder, people(**{name: range(12)}))
    assert build(folder).code == 0
    write_tables(folder, people())
    return build(folder, "--like", "a", "--name", "b")


def plugin(folder: Path, name: str) -> Outcome:
    folder.mkdir()
    config = folder / "config.toml"
    source = toml_value(f"{name.replace('/', '')}")
    config.write_text(f'plugins = [{source}]\n[data]\ndataset = "cora"\n', "utf-8")
    return kmip("train", "--config", config, "--json")


DOORS: list[Callable[[Path, str], Outcome]] = [
    file_name,
    ambiguous_column,
    label_column,
    missing_word,
    class_name,
    shown_class,
    shown_columns,
    node_id,
    equal_ids,
    described_column,
    column_of_a_build,
    plugin,
]


def steps(outcome: Outcome) -> list[list[str]]:
    """Return the words of each printed step; on stderr and in JSON they are the same."""
    lines = re.findall(
        r"(?m)^(?:  next|    or|Next): (.*)$", outcome.out * (outcome.code == 0) + outcome.err
    )
    if outcome.code and outcome.out.startswith("{"):
        assert json.loads(outcome.out)["error"].get("next", "").splitlines() == lines
    return [shlex.split(line) for line in lines]


def labels(outcome: Outcome) -> list[str]:
    """Return what begins each line: its label, or blanks."""
    lines = outcome.err.splitlines() + outcome.out.splitlines() * (not outcome.out.startswith("{"))
    return [re.match(r" *(?:[\w ]{0,12}: ?)?", line)[0] for line in lines]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_hostile_name_prints_what_a_harmless_one_does(door, home, tmp_path):
    expected = door(tmp_path / "harmless", HARMLESS)

    def check(number: int, name: str) -> None:
        shutil.rmtree(home, ignore_errors=True)
        folder = tmp_path / f"{number:08}"
        outcome = door(folder, name)
        shutil.rmtree(folder)
        shown = one_line(name)
        for word in (word for words in steps(outcome) for word in words):
            assert word
        assert outcome.code == expected.code
        assert [
            [
                word.replace(shown, HARMLESS).replace(str(folder), str(tmp_path / "harmless"))
                for word in words
            ]
            for words in steps(outcome)
        ] == steps(expected)
        assert len(labels(outcome)) == len(labels(expected))
        assert all(len(line) < 3000 for line in (outcome.err).splitlines())

    check_each(lambda case: check(*case), enumerate(hostile_names()))
