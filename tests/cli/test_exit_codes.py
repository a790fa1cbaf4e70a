"""Every way for a command to end: its exit code, its five parts, its JSON; never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from support.cases import check_each
from support.cli import expect_refusal, kmip, python
from support.shared import ROOT

from kmip_data import errors
from kmip_data.cli import main
from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import json_option
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import Command
from kmip_data.runtime.progress import Progress

CLASSES = {
    errors.CheckFailed: 1,
    errors.UsageError: 2,
    errors.MissingExtra: 2,
    errors.FolderInUse: 2,
    errors.SourceUnavailable: 3,
    errors.NotReproduced: 1,
    errors.DamagedInput: 4,
    errors.LicenseNotAccepted: 5,
    errors.OutOfResources: 6,
}
#: Runs ``body`` as the command ``list``, in a process.
AS_LIST = (
    "import sys, os, time, weakref, click; from kmip_data.cli import main\n"
    "{body}\n"
    "main.root.get_command = lambda ctx, name: click.Command('list', callback=body)\n"
    "sys.argv = ['kmip-data', 'list']; main.main()"
)


@pytest.fixture
def command_that(monkeypatch):
    """Put a command ``x`` on the command line that runs the function given, or raises the error."""

    def make(body):
        @click.command(cls=ClickCommand)
        @json_option
        def x():
            if isinstance(body, BaseException):
                raise body
            body()

        monkeypatch.setitem(main.COMMANDS, "x", "Fails.")
        monkeypatch.setattr(main.root, "get_command", lambda ctx, name: x)

    return make


def test_every_error_has_its_exit_code_and_six_parts(command_that):
    defined = {value for value in vars(errors).values() if isinstance(value, type)}
    ours = {each for each in defined if issubclass(each, errors.KmipDataError)}
    ours -= {errors.OpenQuestions}  # made of questions: tests/cli/test_conversation.py
    assert ours == {errors.KmipDataError, *CLASSES}, "no class is forgotten"

    def check(case):
        error, code = case
        command_that(
            error(
                "It broke.",
                expected="a",
                found="b",
                left="c",
                steps=["d", Command("kmip-data list")],
            )
        )
        outcome = kmip("x")
        assert (outcome.code, outcome.out) == (code, "")
        assert (
            outcome.err == "Error: It broke.\n  expected: a\n  found: b\n  on disk: c\n"
            "  remedy: d\n  next: kmip-data list\n"
        )

    check_each(check, CLASSES.items())


def test_other_errors_have_their_documented_exit_codes(command_that):
    def check(case):
        body, code, word = case
        command_that(body)
        assert word in expect_refusal("x", "--json", code=code)

    denied = PermissionError(errno.EACCES, "Permission denied", "/root/secret")
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    full = [
        (OSError(number, os.strerror(number), "/somewhere"), 6, "/somewhere") for number in numbers
    ]
    others = [(MemoryError(), 6, ""), (lambda: torch.empty(2**60), 6, "memory")]
    others += [
        (denied, 2, "/root/secret cannot be used"),
        (KeyboardInterrupt(), 130, "Interrupted"),
    ]
    ends = [(SystemExit(7), 7, ""), (SystemExit("text"), errors.UNKNOWN_ERROR, "")]
    check_each(check, [*full, *others, *ends])


def test_a_long_value_is_cut_with_its_length(tmp_path):
    message = expect_refusal("train", "cora", "--set", f"optimizer.lr={'x' * 300_000}")
    assert "… (300,026 characters) …" in message
    assert max(map(len, message.splitlines())) < 4_100
    config = tmp_path / "long.toml"
    config.write_text(f"[model]\nlayers = {'9' * 5_000}\n")
    assert "set_int_max_str_digits" not in expect_refusal("train", "--config", config, code=4)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\x7f\x9b31m\u202egnp.exe\u2066"


def test_printed_text_never_contains_control_sequences(command_that):
    """Names of files, classes and headers of servers are shown, on either stream, and not obeyed."""

    def body():
        click.echo(f"class {HOSTILE}\tof\nlines")
        with Progress(f"unpack {HOSTILE}", 1) as progress:
            progress.print_line(f"said {HOSTILE}")
        raise errors.DamagedInput(f"{HOSTILE} is damaged.", found=HOSTILE, steps=HOSTILE)

    command_that(body)
    outcome = kmip("x", "--json")
    assert outcome.code == 4
    assert [word for word in ("class", "\tof\nlines") if word not in outcome.out] == []
    assert [word for word in ("said", "is damaged", "gnp.exe") if word not in outcome.err] == []
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", outcome.out + outcome.err
    )


def test_json_error_is_one_object_on_stdout_and_text_on_stderr(command_that):
    command_that(
        errors.DamagedInput(
            "It broke.", expected="a", found="b", left="c", steps=["d", Command("kmip-data list")]
        )
    )
    outcome = kmip("x", "--json")
    about = {
        "class": "DamagedInput",
        "exit_code": 4,
        "what": "It broke.",
        "expected": "a",
        "found": "b",
        "on_disk": "c",
        "remedy": "d",
        "steps": [["kmip-data", "list"]],
    }
    assert outcome.json == {"error": about}
    assert "It broke." in outcome.err

    def body():
        print_json({"ok": False})
        raise errors.CheckFailed("It broke.")

    command_that(body)
    outcome = kmip("x", "--json")
    assert (outcome.code, outcome.json) == (1, {"ok": False}), (
        "after the result it adds nothing to stdout"
    )


def test_json_has_no_nan_and_is_ascii(command_that, home):
    out = kmip("info", "s3dis", "--json").out
    assert out.isascii()
    assert "\\u00a9" in out
    value = {
        "a": float("nan"),
        "b": [np.float32("inf"), np.int64(3), (2.5,)],
        "c": Path("x"),
        "d": "NaN",
    }
    command_that(lambda: print_json(value))
    values = json.loads(kmip("x", "--json").out, parse_constant=pytest.fail)
    assert values == {"a": None, "b": [None, 3, [2.5]], "c": "x", "d": "NaN"}


def test_signals_end_a_process_with_its_code_and_without_a_traceback():
    """Signals also end a process inside a weak reference's callback, where Python swallows exceptions."""

    def check(case):
        number, code = case
        body = (
            "def body():\n"
            "    class A: pass\n"
            "    a = A()\n"
            f"    r = weakref.ref(a, lambda _: [os.kill(os.getpid(), {number:d}), len('')])\n"
            "    del a\n"
            "    time.sleep(20)"
        )
        assert "Traceback" not in python("-c", AS_LIST.format(body=body), code=code).err

    check_each(check, [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])


def test_a_signal_also_ends_the_test_process():
    program = """
import os, signal, time
from support.cli import kmip
from kmip_data.cli import main
from kmip_data.runtime.signals import exit_on_signals

def run(args):
    try:
        with exit_on_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)
    except SystemExit as request:
        return request.code

main.run_command_line = run
kmip("build")
"""
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    python("-c", program, code=-signal.SIGTERM, PYTHONPATH=paths)


def test_unforeseen_error_keeps_its_traceback_in_a_file(command_that):
    command_that(ZeroDivisionError("by zero"))
    message = expect_refusal("x", code=errors.UNKNOWN_ERROR)
    assert "ZeroDivisionError: by zero" in message
    path = Path(next(word for word in message.split() if word.endswith(".txt")))
    assert "test_exit_codes.py" in path.read_text("utf-8")
    path.unlink()


def test_command_that_cannot_be_imported_keeps_its_traceback_in_a_file(monkeypatch):
    """The error is not completed from the options of the command, which cannot be read."""
    monkeypatch.setitem(sys.modules, "kmip_data.cli.list", None)
    message = expect_refusal("list", code=errors.UNKNOWN_ERROR)
    assert "kmip_data.cli.list" in message
    Path(next(word for word in message.split() if word.endswith(".txt"))).unlink()


def test_a_broken_pipe_prints_no_error():
    """`kmip-data … | head -1`: nothing on stderr, the code of a closed pipe."""
    words = [sys.executable, "-m", "kmip_data", "list", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (errors.PIPE_CLOSED, b"")


def test_letters_that_a_terminal_lacks_do_not_lose_the_line(home):
    """Dataset pages contain © and ×, which ASCII lacks.

    ``python -m kmip_data`` is the command.
    """
    words = [sys.executable, "-m", "kmip_data", "info", "s3dis"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(words, capture_output=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"s3dis: ")


def test_threads_of_torch_wait_passively(monkeypatch):
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setattr(main.sys, "unraisablehook", main.sys.unraisablehook)
    monkeypatch.setattr(main, "run_command_line", lambda _: 0)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with pytest.raises(SystemExit):
        main.main()
    assert os.environ.pop("OMP_WAIT_POLICY") == "PASSIVE"


def test_errors_name_the_value_and_the_next_step(home, make_build, tmp_path):
    made = make_build()
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.e57").write_text("ASTM-E57")
    cases = {
        ("list", "--home", file): f"The home {file} is not a folder.",
        ("build", "points", "--name", "mine", "--archive", tmp_path / "scans"):
            "a folder of .asc, .bin, .csv, .las, .laz, .npy, .pcd, .ply, .pts, .tsv, .txt, .xyz files",
        ("verify", "s3dis"): f"use {made.path.name!r} instead, or build this one\n  next: kmip-data",
        ("verify", "s3dis", "--sample"): "next: kmip-data build s3dis --sample\n",
    }  # fmt: skip
    for words, message in cases.items():
        assert message in expect_refusal(*words)
    assert file.read_text() == "mine"


@pytest.mark.parametrize(("code", "ended"), [(3, True), (None, False)])
def test_a_process_with_pytorch_ends_without_freeing_its_objects(
    code: int | None, ended: bool
) -> None:
    """Output, the exit code and later exit functions remain; a child of a fork ends as usual."""
    codes = [] if code is None else [code]
    script = f"""
import atexit, os, sys, types
from kmip_data.cli import main
sys.modules["torch"] = types.ModuleType("torch")

class Object:
    def __del__(self):
        os.write(1, b"freed ")

kept = Object()
atexit.register(main._end_without_freeing, os.getpid(), {codes})
atexit.register(print, "exit function")
child = os.fork()
if not child:
    sys.exit(5)
child_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.stdout.write(f"child {{child_code}}, ")
sys.exit(3)
"""
    run = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert run.returncode == 3, run.stderr
    of_child, _, of_parent = run.stdout.partition("child 5, ")
    assert of_child.split() == ["exit", "function", "freed"]
    assert of_parent.split() == ["exit", "function"] + ["freed"] * (not ended)
