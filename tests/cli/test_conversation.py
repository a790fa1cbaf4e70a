"""Questions of a build on a terminal: answers typed by a person, and the line that they make."""

from __future__ import annotations

import io
import sys

import click
import pytest
from support.cli import expect_refusal, expect_success

from kmip_data.cli.shared import conversation

EDGES = "source,target\n0,1\n1,2\n2,3\n3,0\n"
#: -1 is a class or a missing label, NA a text or a missing value.
NODES = "id,label,land,age\n0,-1,NA,1\n1,0,NL,2\n2,1,NA,3\n3,0,NL,4\n"


class Terminal(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(EDGES)
    return folder


def typed(monkeypatch, text: str) -> None:
    """Let a person type a text, and a terminal show the messages."""
    monkeypatch.setattr(sys, "stdin", Terminal(text))
    monkeypatch.setattr(conversation, "can_ask", lambda: True)
    monkeypatch.setattr("kmip_data.cli.main.can_ask", lambda: True)


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        ("\n\n", "--set missing=none --set missing=-1"),
        ("missing=NA\n--set task=regression\n", "--set missing=NA --set task=regression"),
    ],
    ids=["likeliest", "own"],
)
def test_answers_make_the_line_that_builds(files, monkeypatch, answers, options):
    line = ("build", "graphs", "--name", "own", "--archive", files)
    refusal = expect_refusal(*line, code=4)
    typed(monkeypatch, answers)
    outcome = expect_success(*line)
    for question in ("a class or a missing label", "a text or a missing value"):
        assert question in refusal
        assert question in outcome.err
    assert f"kmip-data build graphs --name own --archive {files} {options}\n" in outcome.err


def test_end_of_input_leaves_the_refusal(files, monkeypatch):
    line = ("build", "graphs", "--name", "own", "--archive", files)
    refusal = expect_refusal(*line, code=4)
    typed(monkeypatch, "")
    assert refusal in expect_refusal(*line, code=4)


def test_an_answer_that_is_no_option_is_asked_again(files, monkeypatch):
    typed(monkeypatch, "a class\nmissing=none\nmissing=none\n")
    outcome = expect_success("build", "graphs", "--name", "own", "--archive", files)
    assert "'a class' is not an option" in outcome.err
    assert outcome.err.count("Question 1 of") == 1


@pytest.mark.parametrize("answer", ["a", "--set", "--set a=1 b", "'a=1", ""])
def test_no_options(answer):
    with pytest.raises(click.UsageError):
        conversation.options_of_answer(answer)
