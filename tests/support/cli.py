"""Run the command line: in this process where that is enough, as a process where it is not."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.shared import ROOT
from support.typed_advice import typed_advice

from kmip_data.runtime.signals import TERMINATION_SIGNALS


@dataclass(frozen=True)
class Outcome:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        return json.loads(self.out)


def kmip(*args: object) -> Outcome:
    """Run ``kmip-data ARGS`` in this process."""
    from kmip_data.cli.main import run_command_line

    typed_advice.note_typed([str(arg) for arg in args])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line([str(arg) for arg in args])
    # The command line made an exit code of a signal that was meant for the tests.
    if code - 128 in TERMINATION_SIGNALS:
        signal.raise_signal(code - 128)
    outcome = Outcome(code, out.getvalue(), err.getvalue())
    typed_advice.note_printed(str(args[0]) if args else "", outcome.out, outcome.err)
    assert "Traceback" not in outcome.out + outcome.err, outcome.err
    return outcome


def expect_success(*args: object) -> Outcome:
    """Run a command that must succeed."""
    outcome = kmip(*args)
    assert outcome.code == 0, outcome.err
    return outcome


def expect_refusal(*args: object, code: int = 2) -> str:
    """Run a command that must end with ``code``, and return its message."""
    outcome = kmip(*args)
    assert outcome.code == code, outcome.err
    return outcome.err


def python(*words: object, code: int = 0, cwd: Path = ROOT, **environment: str) -> Outcome:
    """Run ``python WORDS`` in the checkout, with further variables; it must end with ``code``."""
    command, variables = [sys.executable, *map(str, words)], {**os.environ, **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1700, check=False, cwd=cwd, env=variables
    )
    assert done.returncode == code, done.stdout + done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def kmip_process(*args: object, code: int = 0, **environment: str) -> Outcome:
    """Run ``python -m kmip_data ARGS`` as a process; it must end with ``code``."""
    return python("-m", "kmip_data", *args, code=code, **environment)
