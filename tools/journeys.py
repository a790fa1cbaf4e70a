"""Number of our files that three journeys execute, printed by ``make figures``; ``-v`` names them.

- One training step: the third of ``train helsinki``, from its forward pass to its update.
- That command, from start to exit, on data that is built.
- ``build s3dis --sample --jobs 1``, its parent process.

A file counts if one of its functions begins to run, not if it is imported only. Each journey runs
in a child process.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT}/{folder}/" for folder in ("kmip_data", "pipelines", "models", "cli"))
STEP = 3
TRAIN = ["train", "--dataset", "helsinki", "--epochs", "3", "--quiet"]
BUILD = ["build", "s3dis", "--sample", "--jobs", "1", "--quiet"]


real_path = functools.cache(os.path.realpath)


def child(arguments: list[str], *, step: bool) -> None:
    """Run one command in this process and print the files it executed.

    ``step``: the figures of one step.
    """
    files, of_step = set[str](), set[str]()

    def profile(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes are not optimised.
        if event != "call" or not code.co_flags & CO_OPTIMIZED:
            return
        # Links lead from the import name to the folders.
        file = real_path(code.co_filename)
        if file.startswith(OURS):
            files.add(file)

    threading.setprofile(profile)
    sys.setprofile(profile)
    from kmip_data.cli.main import run_command_line

    if step:
        _watch_the_step(files, of_step)
    code = run_command_line(arguments)
    sys.setprofile(None)
    print(code, *sorted(of_step if step else files), sep="\n", file=sys.__stderr__)


def _watch_the_step(files: set[str], of_step: set[str]) -> None:
    """Leave in ``of_step`` the files from the third training forward pass to the end of its update."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    done, begun = 0, False

    def begin(module: torch.nn.Module, _: Any) -> None:
        nonlocal begun
        if not begun and done == STEP - 1 and module.training and torch.is_grad_enabled():
            begun = True
            files.clear()

    def finish(*_: Any) -> None:
        nonlocal done
        done += 1
        if done == STEP:
            of_step.update(files)

    register_module_forward_pre_hook(begin)
    register_optimizer_step_post_hook(finish)


def journey(arguments: list[str], home: str, *, step: bool = False) -> list[str]:
    """Return the files of one journey, relative to the root."""
    environment = os.environ | {"KMIP_DATA_HOME": home}
    command = [sys.executable, __file__, "step" if step else "whole", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    files = [line.removeprefix(f"{ROOT}/") for line in lines if line.startswith(OURS)]
    if done.returncode or not files:
        raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return files


def main() -> None:
    """Print the three figures, and with ``-v`` the files."""
    with tempfile.TemporaryDirectory() as home:
        rows = {"archive to shard": journey(BUILD, home)}
        journey(["build", "helsinki", "--quiet"], home)
        rows["train on built data"] = journey(TRAIN, home)
        rows["one training step"] = journey(TRAIN, home, step=True)
    for name, files in rows.items():
        print(f"{name:20} {len(files):4} files")  # noqa: T201
        if "-v" in sys.argv:
            print(*(f"  {file}" for file in files), sep="\n")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(sys.argv[2:], step=sys.argv[1] == "step")
    else:
        main()
