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
from kmip_data.errors import OpenQuestions, Setting

EDGES = "source,target\n0,1\n1,2\n2,3\n3,0\n"
#: -1 is a class or a missing label, NA is text or a missing value.
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
MANY = [f"{n}.txt" for n in range(24)]
ONE_HOT = io.BytesIO()
np.savez(
    ONE_HOT,
    edges=np.array([[0, 1], [1, 2], [2, 3]]),
    node_features=np.eye(4),
    node_labels=np.eye(2)[[0, 1, 0, 1]],
)
PIXELS = {
    "16 bits": np.arange(64, dtype=np.uint16).reshape(8, 8) * 60,
    "classes": np.arange(64, dtype=np.uint8).reshape(8, 8) % 3,
    "0 and 255": np.arange(64, dtype=np.uint8).reshape(8, 8) % 2 * 255,
}
#: Recipe, files, and part of the question.
QUESTIONS = {
    "-1 of nodes": ("graphs", nodes_with(-1, 0, 1, 0), "'label' is -1"),
    "NA": (
        "graphs",
        nodes_with(0, 1, 1, 0) | {"nodes.csv": NODES.replace("-1", "0")},
        "text or a missing value",
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
    "header": (
        "graphs",
        {"edges.csv": "a,b\nc,d\nd,c\n"},
        "may be names of columns or data",
    ),
    "one-hot": ("graphs", {"a.npz": ONE_HOT.getvalue()}, "has a single 1"),
    "-999": (
        "graphs",
        {"edges.csv": EDGES, "nodes.csv": "id,age\n0,5\n1,-999\n2,7\n3,6\n"},
        "Is this a number or a missing value?",
    ),
    "rounded": (
        "graphs",
        {
            "edges.csv": EDGES,
            "nodes.csv": "id,when\n" + "".join(f"{n},{1_700_000_001 + n}\n" for n in range(4)),
        },
        "float32",
    ),
    "ends": (
        "graphs",
        {
            "nodes.csv": "id,age\n" + "".join(f"n{n},{n}\n" for n in range(6)),
            "edges.csv": "one,two,three\n"
            + "".join(f"n{n},n{5 - n},n{(n + 2) % 6}\n" for n in range(6)),
        },
        "several columns with ids",
    ),
    "node rows": (
        "graphs",
        {"nodes.csv": "age,size\n3,1.5\n4,2.5\n1,0.5\n", "edges.csv": "source,target\n1,2\n2,1\n"},
        "rows from 1",
    ),
    "names": ("points", clouds(["a.txt"], "0 1 2\n"), "header=yes or header=no"),
    "decimal sign": (
        "points",
        {"a.txt": "1,234;2,345;7\n2,345;3,456;8\n3,456;4,567;9\n"},
        "a decimal point or a decimal comma",
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
        "nothing: label='none', or the folders batch0, batch1",
    ),
    "clouds in folders": (
        "points",
        clouds([f"{name}.txt" for name in FOLDERS]) | FRACTIONS,
        "or the column 'kind' of t.csv",
    ),
    "batches of pictures": (
        "superpixels",
        [f"{name}.png" for name in BATCHES],
        "nothing: label='none', or the folders batch0, batch1",
    ),
    "white": ("superpixels", {"0.png": "16 bits"}, "which is nearly black"),
    "EXIF": (
        "superpixels",
        {"a.jpg": "rotated", "b.jpg": "", "a_mask.png": "classes", "b_mask.png": "classes"},
        "its mask fits both ways",
    ),
    "masks of two values": (
        "superpixels",
        {"a.jpg": "", "b.jpg": "", "a_mask.png": "0 and 255", "b_mask.png": "0 and 255"},
        "255 marks pixels without a class",
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
        content = files[name] if isinstance(files, Mapping) else ""
        if path.suffix in {".png", ".jpg"}:
            image = pytest.importorskip("PIL.Image")
            pytest.importorskip("skimage")
            pixels = np.random.default_rng(len(name)).integers(0, 255, (8, 8, 3), np.uint8)
            if content in PIXELS:
                pixels = PIXELS[content]
            exif = image.Exif()
            exif[0x112] = 6 if content == "rotated" else 1
            image.fromarray(pixels).save(path, exif=exif)
            continue
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
    sent = OpenQuestions({"Is it a?": Setting(a=1), "Is it b?": Setting(b=2)})
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
        ("\n\n", "--set missing=label:-1 --set missing=land:none"),
        ("task=regression\n--set missing=NA\n", "--set task=regression --set missing=NA"),
    ],
    ids=["likeliest", "own"],
)
def test_answers_make_the_line_that_builds(files, monkeypatch, answers, options):
    line = ("build", "graphs", "--name", "own", "--archive", files)
    refusal = expect_refusal(*line, code=4)
    typed(monkeypatch, answers)
    outcome = expect_success(*line)
    for question in ("'label' is -1", "'land' has 'NA'"):
        assert question in refusal
        assert question in outcome.err
    assert f"kmip-data build graphs --name own --archive {files} {options}\n" in outcome.err


def test_end_of_input_leaves_the_refusal(files, monkeypatch):
    line = ("build", "graphs", "--name", "own", "--archive", files)
    refusal = expect_refusal(*line, code=4)
    typed(monkeypatch, "")
    assert refusal in expect_refusal(*line, code=4)


def test_an_answer_that_is_no_setting_is_asked_again(files, monkeypatch):
    typed(monkeypatch, "a class\nmissing=none\nmissing=none\n")
    outcome = expect_success("build", "graphs", "--name", "own", "--archive", files)
    assert "'a class' is no KEY=VALUE" in outcome.err
    assert outcome.err.count("Question 1 of") == 1


@pytest.mark.parametrize("answer", ["a", "--set", "--set a=1 b", "'a=1", ""])
def test_no_settings(answer):
    with pytest.raises(click.UsageError):
        conversation.read_answer(answer)
