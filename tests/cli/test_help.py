"""Help: quick, complete, with an example for every command."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
from support.cases import check_each
from support.cli import expect_success, kmip, python
from support.shared import ROOT

import kmip_data
from kmip_data.cli.main import (
    COMMAND_SECTIONS,
    COMMANDS,
    COMPLETION_VARIABLE,
    root,
    run_command_line,
)
from kmip_data.cli.shared.command_classes import command_examples as read_examples
from kmip_data.cli.shared.options import parse_distinct_numbers, parse_number_list
from kmip_data.errors import UsageError

SHARED = {"help", "home", "as_json", "quiet", "sample"}  #: described once, at the head of the page
BEGIN = "<!-- Below: written by `make docs-tables` -->\n"


def page_of(root: click.Group) -> str:
    """Return the options of several commands, then the sections of all, in the order of the help."""
    where: dict[str, list[str]] = {}
    for name, command in _commands(root):
        for row in _rows(command):
            where.setdefault(row, []).append(f"`{name}`")
    common = {row: ", ".join(names) for row, names in where.items() if len(names) > 1}
    head = [
        "## Options of several commands\n",
        "The other options of each command are in the sections below.\n",
    ]
    head += ["| option | what | commands |", "|---|---|---|"]
    page = [*head, *(f"{row} {names} |" for row, names in common.items()), ""]
    for name, command in _commands(root):
        context = click.Context(command)
        options = [param for param in command.params if isinstance(param, click.Option)]
        arguments = [
            param.make_metavar(context) for param in command.params if param not in options
        ]
        needed = [
            f"{each.opts[0]} {each.make_metavar(context)}" for each in options if each.required
        ]
        page.append(f"## {name}\n")
        page.append(f"    {' '.join(['kmip-data', name, *arguments, *needed])}\n")
        page += [str(command.help).splitlines()[0], ""]
        for title, options in command.sections(context).items():
            if rows := [row for row in _rows(command, options) if row not in common]:
                heading = [f"{title}:", ""] if command.option_sections else []
                page += [*heading, "| option | what |", "|---|---|", *rows, ""]
    return "\n".join(page)


def _commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command


def _rows(command: click.Command, options: Iterable[click.Parameter] | None = None) -> list[str]:
    """Rows of a table for options of a command: of all by default, without the options of every command."""
    context = click.Context(command)
    rows = []
    for option in options or command.params:
        record = option.get_help_record(context)
        if not isinstance(option, click.Option) or record is None:
            continue
        if option.name in SHARED or "--help" in option.opts:
            continue
        names, text = (part.replace("|", "\\|") for part in record)  # a bar would end the cell
        short, comma, long = names.rpartition(", ")
        rows.append(f"| `{long}`{comma}{f'`{short}`' if short else ''} | {text} |")
    return rows


def test_root_help_lists_every_command_in_order():
    text = expect_success("--help").out
    commands = text.split("First steps:")[1].split("Examples:")[0]
    assert re.findall(r"^  (\w+)  +[A-Z]", commands, re.MULTILINE) == list(
        itertools.chain(*COMMAND_SECTIONS.values())
    )
    assert sorted(itertools.chain(*COMMAND_SECTIONS.values())) == sorted(COMMANDS)
    assert expect_success().out == expect_success("-h").out == text
    assert expect_success("--version").out.strip().endswith(kmip_data.__version__)


def test_every_command_has_help_with_examples_of_options_that_exist(home, monkeypatch):
    monkeypatch.setattr(
        "kmip_data.cli.shared.targets.NameType.convert", lambda self, value, param, ctx: value
    )
    monkeypatch.chdir(home.parent)
    Path("mine.toml").touch()  # an example reads it
    failed, examples = [], read_examples()
    for name, line in COMMANDS.items():
        outcome, command = kmip(name, "--help"), root.get_command(None, name)
        sound = outcome.code == 0 and outcome.out == kmip(name, "-h").out and examples[name]
        if not sound or command.help.splitlines()[0] != line:
            failed.append(name)
        for example in examples[name]:
            if f"  {example}\n" not in outcome.out or not example.startswith(f"kmip-data {name}"):
                failed.append(example)
            command.make_context(name, example.split(" >")[0].split()[2:]).close()
    assert not failed


def test_parameters_of_a_dataset_are_options_or_listed_by_info(home):
    text = expect_success("build", "--help").out
    assert [
        word for word in ("--k N", "--test-area N", "--limit N", "--split-rule") if word not in text
    ] == []
    text = expect_success("info", "s3dis").out
    shown = (
        "--k ",
        "--set knn_rule=",
        "exact | torch-cluster",
        "--test-area",
        "--set val_fraction=",
    )
    assert [option for option in shown if option not in text] == []
    assert "--place" in expect_success("info", "city").out


def test_commands_and_options_are_completed(monkeypatch, capfd):
    cases = {"kmip-data ": set(COMMANDS), "kmip-data build s3dis --te": {"--test-area"}}
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")

    def check(words):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        assert run_command_line([]) == 0
        assert cases[words] <= {
            line.partition(",")[2] for line in capfd.readouterr().out.splitlines()
        }

    check_each(check, cases)


def test_lists_of_numbers_are_read_in_the_order_given():
    lists = {"0": [0], "0..3": [0, 1, 2, 3], "5,0..1,5": [5, 0, 1, 5], "15, 10": [15, 10]}
    assert {text: parse_number_list("--seeds", text) for text in lists} == lists
    assert parse_distinct_numbers("--seeds", "5,0..1") == [5, 0, 1]
    with pytest.raises(UsageError):
        parse_distinct_numbers("--seeds", "5,0..1,5")
    for text in ("", "x", "0-3", "1..", "..1", "3..1", "-1", "1,,2", "0..10000", "\u0661"):
        with pytest.raises(UsageError):
            parse_number_list("--seeds", text)


def test_help_does_not_import_heavy_packages():
    """`kmip-data --help` answers at once, and the help of a command without PyTorch."""
    light = ["torch", "numpy", "h5py", "pydantic", "numba", "requests"]
    of_commands = ["torch", "lightning", "matplotlib", "torch_geometric"]
    lines = {"--help": light, "list --help": of_commands, "build s3dis --help": of_commands}
    lines["train s3dis -h"] = of_commands
    code = (
        "import sys; from kmip_data.cli.main import run_command_line as run\n"
        f"for line, names in {lines!r}.items():\n"
        "    run(line.split()); print('LOADED', sorted(set(names) & set(sys.modules)))"
    )
    loaded = re.findall("^LOADED (.*)", python("-c", code).out, re.MULTILINE)
    assert dict(zip(lines, loaded, strict=True)) == dict.fromkeys(lines, "[]")


def test_the_page_of_commands_is_up_to_date():
    path = ROOT / "docs" / "options.md"
    head, begin, table = path.read_text("utf-8").partition(BEGIN)
    expected = f"\n{page_of(root)}"
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        path.write_text(head + BEGIN + expected, "utf-8")
        return
    assert begin + table == BEGIN + expected, "run make docs-tables"


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("train", ["Data", "Model", "Run", "Machine"]),
        ("build", ["Your own data", "Data", "Download", "Machine"]),
    ],
)
def test_every_option_belongs_to_a_group(name, titles):
    command = root.get_command(None, name)
    assert command is not None
    sections = command.sections(click.Context(command))
    assert [*sections] == titles, "an option is in no group"
    listed = [flag for flags in command.option_sections.values() for flag in flags if flag != "-h"]
    known = {param.opts[0] for param in command.params if isinstance(param, click.Option)}
    assert sorted(listed) == sorted(known), "a group names an option that is gone"
    text = expect_success(name, "--help").out
    assert [line for line in text.splitlines() if line.endswith(":") and line[0] != " "] == [
        *(f"{title}:" for title in titles),
        "Examples:",
    ]
