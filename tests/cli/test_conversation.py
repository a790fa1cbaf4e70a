"""Questions of a build on a terminal: answers typed by a person, and the line that they make."""

from __future__ import annotations

import io
import pickle
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
import numpy as np
import pytest
from support.cli import expect_refusal, expect_success

from kmip_data.cli.shared import conversation
from kmip_data.errors import OpenQuestions

EDGES = "source,target\n0,1\n1,2\n2,3\n3,0\n"
#: -1 is a class or a missing label, NA a text or a missing value.
NODES = "id,label,land,age\n0,-1,NA,1\n1,0,NL,2\n2,1,NA,3\n3,0,NL,4\n"


def clouds(
    names: Sequence[str], header: str = "", columns: str = "", end: str = ""
) -> dict[str, str]:
    """Clouds of nine points, whose further ``columns`` have {n}, the number of the point."""
    rows = [f"{n} {n * 7 % 5} {n * 3 % 7}" + columns.format(n=n % 3) for n in range(9)]
    return {name: header + "\n".join(rows) + "\n" + end for name in names}


def table_of(names: Sequence[str], values: Sequence[object], column: str = "kind") -> str:
    return f"file,{column}\n" + "".join(
        f"{n},{value}\n" for n, value in zip(names, values, strict=True)
    )


def nodes_with(*values: object) -> dict[str, str]:
    rows = "".join(f"{number},{value}\n" for number, value in enumerate(values))
    return {"edges.csv": EDGES, "nodes.csv": f"id,label\n{rows}"}


XY = "id,x,y\n0,.5,.1\n1,.2,.3\n2,.1,.9\n3,.7,.2\n"
TARGETS = "id,label,class\n0,a,0\n1,b,1\n2,a,0\n3,b,1\n"
FLOATS = np.random.default_rng(0).random((9, 4)).astype("<f4").tobytes()
FOLDERS = [f"{'ab'[n % 2]}/{n}" for n in range(4)]
FRACTIONS = {"t.csv": table_of(FOLDERS, [0.5, 0.7, 0.5, 0.8])}
BATCHES = [f"batch{n % 2}/{n}" for n in range(4)]
TREES = "no,height,wood\n" + "".join(f"{n},{n}.5,{'ab'[n % 2]}\n" for n in range(4))
MANY = [f"{n}.txt" for n in range(24)]
#: Recipe, files, and part of the question.
QUESTIONS = {
    "-1 of nodes": ("graphs", nodes_with(-1, 0, 1, 0), "a class or a missing label"),
    "NA": (
        "graphs",
        nodes_with(0, 1, 1, 0) | {"nodes.csv": NODES.replace("-1", "0")},
        "a text or a missing value",
    ),
    "x and y": ("graphs", {"edges.csv": EDGES, "nodes.csv": XY}, "a coordinate or the target"),
    "two targets": (
        "graphs",
        {"edges.csv": EDGES, "nodes.csv": TARGETS},
        "the target may be one of",
    ),
    "files of edges": (
        "graphs",
        {"a.csv": EDGES, "b.csv": EDGES.replace("0", "9")},
        "parts of one graph or a graph each",
    ),
    "files of edges without names": (
        "graphs",
        {f"{n}.edges": f"0 {n}\n{n} 3\n" for n in "124"},
        "parts of one graph or a graph each",
    ),
    "numbers of nodes": (
        "graphs",
        nodes_with(*(n // 2 * 4 for n in range(50))),
        "classes or numbers",
    ),
    "names": ("points", clouds(["a.txt"], "0 1 2\n"), "may be names or a point"),
    "decimal sign": (
        "points",
        {"a.txt": "1,234;2,345;7\n2,345;3,456;8\n3,456;4,567;9\n"},
        "two ways",
    ),
    "columns of float32": ("points", {"a.bin": FLOATS}, "columns of float32"),
    "last label": (
        "points",
        clouds(["a.txt"], "x y z label\n", " {n}", "9 9 9 255\n"),
        "255 may be a class",
    ),
    "numbers of clouds": (
        "points",
        clouds(MANY) | {"t.csv": table_of(MANY, [*range(23), 0], "label")},
        "classes or numbers",
    ),
    "texts of clouds": (
        "points",
        clouds(MANY) | {"t.csv": table_of(MANY, [f"k{max(n, 2)}" for n in range(24)], "label")},
        "classes or names",
    ),
    "batches of clouds": (
        "points",
        clouds([f"{name}.txt" for name in BATCHES]),
        "nothing: --set label=none, or the folders batch0, batch1",
    ),
    "clouds in folders": (
        "points",
        clouds([f"{name}.txt" for name in FOLDERS]) | FRACTIONS,
        "or the column 'kind' of t.csv",
    ),
    "columns of clouds": (
        "points",
        clouds([f"tree_{n:03}.txt" for n in range(4)]) | {"t.csv": TREES},
        "may be the column 'wood' of t.csv: --set label=wood, or the column 'height'",
    ),
    "batches of pictures": (
        "superpixels",
        [f"{name}.png" for name in BATCHES],
        "nothing: --set label=none, or the folders batch0, batch1",
    ),
    "pictures in folders": (
        "superpixels",
        {f"{name}.png": "" for name in FOLDERS} | FRACTIONS,
        "or the column 'kind' of",
    ),
}


def write_files(folder: Path, files: Iterable[str] | Mapping[str, str | bytes]) -> None:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            image = pytest.importorskip("PIL.Image")
            pytest.importorskip("skimage")
            pixels = np.random.default_rng(len(name)).integers(0, 255, (8, 8, 3), np.uint8)
            image.fromarray(pixels).save(path)
            continue
        content = files[name]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("case", QUESTIONS)
def test_the_command_that_a_refusal_prints_builds(tmp_path, monkeypatch, case):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    recipe, files, question = QUESTIONS[case]
    folder = tmp_path / "own files"
    write_files(folder, files)
    further = {"points": ["--k=2"], "superpixels": ["--set=superpixels=4"], "graphs": []}[recipe]
    line = ["build", recipe, "--name", "own", "--archive", str(folder), "-q", "--jobs=1", *further]
    refusal = expect_refusal(*line, "--set=picture=false", code=4)
    assert question in refusal.splitlines()[0]
    step = shlex.split(refusal.rpartition("next: kmip-data ")[2])
    assert step[: len(line)] == line
    expect_success(*step)


def test_questions_of_a_worker_process_arrive():
    sent = OpenQuestions({"Is it a?": "--set a=1", "Is it b?": "--set b=2"})
    received = pickle.loads(pickle.dumps(sent))
    assert str(received) == str(sent)
    assert received.questions == sent.questions


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
