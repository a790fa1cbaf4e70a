"""Printed commands keep the options that were typed."""

from __future__ import annotations

import ast
import json
import re
import shlex
from functools import partial
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import expect_refusal, expect_success, kmip

from kmip_data.cli.main import COMMANDS, root
from kmip_data.cli.shared.corrected_command import complete_next_line
from kmip_data.cli.shared.printed_commands import ParsedCommand, complete_printed_commands
from kmip_data.errors import UsageError
from tools.advice import advice_texts
from tools.structure import ROOT, modules


def complete(text: str, *typed: str) -> str:
    add_options = partial(
        complete_printed_commands, words=typed, root=root, program="kmip-data", choose_build=True
    )
    completed = add_options(text)
    assert add_options(completed) == completed
    return completed


def parse(text: str) -> ParsedCommand:
    return ParsedCommand.from_words(shlex.split(text)[1:], root)


@pytest.mark.parametrize("typed", COMMANDS)
def test_every_command_keeps_home_and_plugins_that_it_takes(typed):
    def names(command):
        return {param.name for param in parse(f"kmip-data {command}").command.params}

    line = [typed]
    if "home" in names(typed):
        line += ["--home", "a b"]
    if "plugin" in names(typed):
        line += ["--plugin", "p.py", "--plugin=q.py"]
    for printed in COMMANDS:
        text = f"kmip-data {printed} NAME, which is prose, or an address"
        completed = parse(complete(text, *line).partition(",")[0])
        both = names(typed) & names(printed)
        assert completed.values.get("home") == ("a b" if "home" in both else None), text
        plugins = ["p.py", "q.py"] if "plugin" in both else None
        assert completed.values.get("plugin") == plugins, text


@given(home=st.text(st.characters(exclude_categories=("C",)), min_size=1))
def test_any_home_is_kept_as_it_was_typed(home):
    text = complete("Next: kmip-data list", "runs", f"--home={home}")
    assert parse(text.removeprefix("Next: ")).values["home"] == home


@pytest.mark.parametrize(
    ("printed", "typed", "expected"),
    [
        # Options that choose a build, on the same dataset only.
        ("build s3dis --archive PATH", "build s3dis --k 32", "build --k 32 s3dis --archive PATH"),
        ("build s3dis", "train s3dis --k 32 --epochs 3", "build --k 32 s3dis"),
        ("preview s3dis", "train s3dis --sample", "preview --sample s3dis"),
        ("train s3dis", "build s3dis --split-rule random", "train --split-rule random s3dis"),
        ("build other", "build s3dis --k 32", "build other"),
        ("train", "train --k 32", "train"),
        ("build points --name b", "build points --name a --k 2", "build points --name b"),
        # Values that the printed command has.
        ("build s3dis --k 8", "build s3dis --k 32", "build s3dis --k 8"),
        ("info s3dis", "train s3dis --k 32", "info s3dis"),
        (
            "build zinc --set on_error=skip",
            "build zinc --set on_error=no --set a=b",
            "build --set a=b zinc --set on_error=skip",
        ),
        ("build mine --plugin FILE", "build mine --plugin a.py", "build mine --plugin FILE"),
        ("train zinc", "build zinc --set a=b", "train zinc"),
        # The settings of a training, in a sweep of the same dataset.
        (
            "sweep --dataset zinc --set a=1,2",
            "train zinc --model gcn --seeds 0,1 --epochs 3 --set a=1,2 --set b=3 --device cpu",
            "sweep --model gcn --seeds 0,1 --epochs 3 --set b=3 --dataset zinc --set a=1,2",
        ),
        ("sweep --dataset other", "train zinc --model gcn", "sweep --dataset other"),
        # The configuration, unless another one is named.
        ("train zinc", "train --config c.toml zinc", "train --config c.toml zinc"),
        ("train other", "train zinc --config=c.toml", "train --config c.toml other"),
        ("train zinc --model gcn", "train zinc --config c.toml", "train zinc --model gcn"),
        ("train --resume zinc/gcn/a", "train --config c.toml", "train --resume zinc/gcn/a"),
        ("train --config d.toml", "train --config c.toml", "train --config d.toml"),
        ("info zinc", "train zinc --config c.toml", "info zinc"),
        # No command.
        ("train --help", "train zinc --home x", "train --help"),
        ("wrote these files", "train zinc --home x", "wrote these files"),
    ],
)
def test_options_of_a_build_are_kept_on_its_dataset(printed, typed, expected):
    assert complete(f"kmip-data {printed}", *typed.split()) == f"kmip-data {expected}"


def test_each_command_of_a_text_is_completed():
    keep = partial(complete, "do: kmip-data list; or `kmip-data runs`, the run's kmip-data doctor")
    assert keep("list", "--home", "h") == (
        "do: kmip-data list --home h; or `kmip-data runs --home h`, the run's kmip-data doctor --home h"
    )


def test_output_errors_and_json_errors_are_completed(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "default"))
    home = tmp_path / "of mine"
    text = expect_success("runs", "--home", home).out
    assert f"Next: kmip-data train --home '{home}' NAME" in text
    step = text.rpartition("kmip-data ")[2]
    assert "cora" in expect_success(*shlex.split(step)).out

    message = expect_refusal("list", "--home", home, "--zzz")
    assert "Error: kmip-data list has no option --zzz.\n" in message
    message = expect_refusal("info", "zzzzzz", "--home", home)
    assert f"next: kmip-data list --home '{home}'\n" in message
    outcome = kmip("info", "zzzzzz", "--home", home, "--json")
    assert json.loads(outcome.out)["error"]["next"] == f"kmip-data list --home '{home}'"
    listed = expect_success("list", "--home", home, "--json").json
    assert Path(listed["home"]) == home


def refused_words(command: str) -> list[str]:
    """Return the words of a printed command that its parser does not take."""
    program, *words = shlex.split(command)
    if program in {"pip", "python", "mv", "osmium"}:
        return []
    assert program == "kmip-data", command
    parsed = parse(command)
    if parsed.command is None:  # the help of a command, or a name that the code fills in
        return [] if words[-1] == "--help" or "x1" in words[:2] else words
    context = click.Context(parsed.command)
    return parsed.command.make_parser(context).parse_args(words[1:])[1]


def test_advice_of_every_error_in_the_code_is_divided_into_whole_commands():
    texts = set()
    for _, path in modules(ROOT).items():
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source if "next=" in source else "")):
            if isinstance(node, ast.keyword) and node.arg == "next":
                texts |= {*advice_texts(node.value)}
    lines = 0
    for line in ("build graphs --archive a --name a --k 3", "train a --epochs 3 --set b.c=1"):
        command = parse(f"kmip-data {line}").command
        for text in texts:
            error = UsageError("x", next=re.sub(r"(?<=[a-z])\{\}", "", text).replace("{}", "x1"))
            complete_next_line(error, line.split(), "kmip-data", command)
            for advised in re.split("\n| && ", error.next or ""):
                assert not advised or not refused_words(advised), (text, advised)
                lines += bool(advised)
            assert not re.search(r"(?<!`)kmip-data [a-z]", error.remedy or ""), text
    assert lines > 200


@pytest.mark.parametrize(
    ("advice", "remedy", "lines"),
    [
        ("--k 3", None, ["build g --by --k 3"]),
        ("--k 3 or --k 4", None, ["build g --by --k 3", "build g --by --k 4"]),
        ("leave out --k and --by", None, ["build g"]),
        ("--k 3, if few; or repair it", "--k 3, if few; or repair it", ["build g --by --k 3"]),
        ("repair it", "repair it", []),
        ("with --k, or --k FILE", "with --k, or --k FILE", []),
        ("kmip-data list; then the same command", None, ["list && kmip-data build g --k 2 --by"]),
        ("kmip-data list, which helps", "this command, which helps", ["list"]),
        (
            "one: kmip-data list; kmip-data runs, or so",
            "one; this command, or so",
            ["list", "runs"],
        ),
        ("move it; then kmip-data list", "move it; then this command", ["list"]),
    ],
)
def test_advice_is_divided_into_commands_and_words(advice, remedy, lines):
    error = UsageError("x", next=advice)
    options = [click.Option(["--k"]), click.Option(["--by"], is_flag=True)]
    words = ["build", "g", "--k", "2", "--by"]
    complete_next_line(error, words, "kmip-data", click.Command("build", params=options))
    assert error.remedy == remedy
    assert (error.next or "").splitlines() == [f"kmip-data {line}" for line in lines]
    shown = "".join(f"\n    or: kmip-data {line}" for line in lines[1:])
    assert not lines or str(error).endswith(f"  next: kmip-data {lines[0]}{shown}")
