"""Printed commands keep the options that were typed."""

from __future__ import annotations

import ast
import json
import shlex
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import expect_refusal, expect_success, kmip

from kmip_data.cli.main import COMMANDS, root
from kmip_data.cli.shared.completed_steps import TypedLine
from kmip_data.cli.shared.printed_commands import ParsedCommand
from kmip_data.errors import SAME_AGAIN, Command, Setting, UsageError
from tools.advice import advice_texts
from tools.structure import ROOT, modules


def line(typed: str) -> TypedLine:
    return TypedLine(typed.split(), "kmip-data", root)


def parse(typed: list[str], printed: str) -> ParsedCommand:
    """Complete a printed command from typed words, and parse it."""
    typed_line = TypedLine(typed, "kmip-data", root)
    completed = typed_line.with_options(Command(f"kmip-data {printed}"))
    assert typed_line.with_options(completed) == completed
    return ParsedCommand.from_words(completed.words[1:], root)


@pytest.mark.parametrize("typed", COMMANDS)
def test_every_command_keeps_home_and_plugins_that_it_takes(typed):
    def names(command):
        return {param.name for param in parse([], command).command.params}

    line = [typed]
    if "home" in names(typed):
        line += ["--home", "a b"]
    if "plugin" in names(typed):
        line += ["--plugin", "p.py", "--plugin=q.py"]
    for printed in COMMANDS:
        completed = parse(line, f"{printed} NAME")
        both = names(typed) & names(printed)
        assert completed.values.get("home") == ("a b" if "home" in both else None), printed
        plugins = ["p.py", "q.py"] if "plugin" in both else None
        assert completed.values.get("plugin") == plugins, printed


@given(home=st.text(st.characters(exclude_categories=("C",)), min_size=1))
def test_any_home_is_kept_as_it_was_typed(home):
    assert parse(["runs", f"--home={home}"], "list").values["home"] == home


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
        # No options.
        ("train --help", "train zinc --home x", "train --help"),
    ],
)
def test_options_of_a_build_are_kept_on_its_dataset(printed, typed, expected):
    step = Command("kmip-data", *printed.split())
    assert line(typed).complete(step) == Command("kmip-data", *expected.split())


def test_output_errors_and_json_errors_are_completed(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "default"))
    home = tmp_path / "of mine"
    lines = expect_success("runs", "--home", home).out.splitlines()
    steps = expect_success("runs", "--home", home, "--json").json["steps"]
    assert lines[1:] == [f"Next: {shlex.join(step)}" for step in steps]
    assert steps[0] == ["kmip-data", "train", "--home", str(home), "NAME"]
    assert "cora" in expect_success(*steps[1][1:]).out

    message = expect_refusal("list", "--home", home, "--zzz")
    assert "Error: kmip-data list has no option --zzz.\n" in message
    message = expect_refusal("info", "zzzzzz", "--home", home)
    assert f"next: kmip-data list --home '{home}'\n" in message
    outcome = kmip("info", "zzzzzz", "--home", home, "--json")
    assert json.loads(outcome.out)["error"]["steps"] == [["kmip-data", "list", "--home", str(home)]]
    listed = expect_success("list", "--home", home, "--json").json
    assert Path(listed["home"]) == home


def refused_words(words: list[str]) -> list[str]:
    """Return the words of a command that its parser does not take."""
    parsed = ParsedCommand.from_words(words, root)
    if parsed.command is None:  # the help of a command, or a name that the code fills in
        return [] if not words or {"--help", "x1"} & {*words[:2], words[-1]} else words
    context = click.Context(parsed.command)
    return parsed.command.make_parser(context).parse_args(words[1:])[1]


def test_every_command_in_the_code_is_taken_by_its_parser():
    commands = 0
    for path in modules(ROOT).values():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Command":
                (template,) = advice_texts(node)
                program, *words = template.replace("{*}", "").replace("{}", "x1").split() or [""]
                if program == "kmip-data":
                    commands += 1
                    assert not refused_words(words), template
    assert commands > 100


@pytest.mark.parametrize(
    ("typed", "step", "completed"),
    [
        ("build g --k 2", Setting(k=3), "build g --k 3"),
        ("build g --k=2 -j 4", Setting(k=None, jobs=1), "build g --jobs 1"),
        ("build g --sample", Setting(sample=None), "build g"),
        ("build g", Setting(sample=True), "build g --sample"),
        ("build g --set a=1", Setting(a=2), "build g --set a=2"),
        (
            "build g --set=a=1 --set b=1",
            Setting(a=["x", "y z"], b=False),
            "build g --set a=x --set 'a=y z' --set b=false",
        ),
        ("build g --archive a", Setting(archive="b c"), "build g --archive 'b c'"),
        ("train g --plugin a", Setting(plugin="b"), "train g --plugin a --plugin b"),
        ("train g --k 3", Setting({"k": None, "model.layers": 3}), "train g --set model.layers=3"),
        (
            "train g --lr 3",
            Setting({"lr": None, "optimizer.lr": 3}),
            "train g --set optimizer.lr=3",
        ),
        ("train g", SAME_AGAIN, "train g"),
        ("train g", Command("mv {} c", "a b"), "mv 'a b' c"),
    ],
)
def test_a_step_is_completed_from_the_typed_line(typed, step, completed):
    program = "" if completed.startswith("mv") else "kmip-data "
    assert str(line(typed).complete(step)) == program + completed


def test_a_step_that_changes_nothing_is_left_out_and_one_not_taken_is_words():
    assert line("build g --k 3").complete(Setting(k=3)) is None
    assert line("build g").complete(Setting(k=None)) is None
    assert line("info g").complete(Setting(label="a; b")) == "label='a; b'"
    assert line("train g").complete(Setting(label="y")) == "label='y'"
    assert line("remove g").complete(SAME_AGAIN) == "the same again"
    assert line("train g").complete("kmip-data list; --k 3") == "kmip-data list; --k 3"
    # A word that no shell takes, and a password.
    assert line(f"build g --set a={'x' * 300_000}").complete(SAME_AGAIN) is None
    assert line("pull https://me:pw@h/a").complete(SAME_AGAIN) is None


@pytest.mark.parametrize(
    ("typed", "correction", "corrected"),
    [
        ("train cra --epochs 3", ("cra", "cora"), "train cora --epochs 3"),
        ("train g --set model.lyers=3", ("model.lyers", "model.layers"), "train g --set model.layers=3"),
        ("train g h", ("h", Setting(dataset="h")), "train g --dataset h"),
        ("train g/h h", ("h", Setting(dataset="h")), "train g/h --dataset h"),
        ("build g --set a 3", ("3", Setting(a="3")), "build g --set a=3"),
        ("train a a", ("a", "b"), "list"),
        ("remove cra", ("cra", "cora"), "list"),
    ],
)  # fmt: skip
def test_a_word_that_was_probably_meant_replaces_the_typed_one(typed, correction, corrected):
    error = UsageError("No.", steps=Command("kmip-data list"))
    error.correction = correction
    assert line(typed).steps(error) == [Command("kmip-data", *corrected.split())]
