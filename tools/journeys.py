"""Count the files of kmip-data that three commands execute, for ``make figures``; ``-v`` lists them.

- The third training step of ``train helsinki``, from its forward pass to its update.
- That command, from start to exit, on a finished build.
- The parent process of ``build s3dis --sample --jobs 1``.

A file counts if one of its functions runs; an import is not enough. Each command runs in a child
process.
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
STEP = 3  #: training step that is watched
TRAIN = ["train", "helsinki", "--epochs", "3", "--quiet"]
BUILD = ["build", "s3dis", "--sample", "--jobs", "1", "--quiet"]


real_path = functools.cache(os.path.realpath)


def child(arguments: list[str], *, step: bool) -> None:
    """Run one command in this process, and print the files that it, or one training step, executed."""
    files = set[str]()
    step_files = set[str]()

    def profile(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        # Skip the bodies of modules and classes, which are not optimised.
        if event != "call" or not code.co_flags & CO_OPTIMIZED:
            return
        # The import names are links to the folders.
        file = real_path(code.co_filename)
        if file.startswith(OURS):
            files.add(file)

    threading.setprofile(profile)
    sys.setprofile(profile)
    from kmip_data.cli.main import run_command_line

    if step:
        _record_step(files, step_files)
    code = run_command_line(arguments)
    sys.setprofile(None)
    print(code, *sorted(step_files if step else files), sep="\n", file=sys.__stderr__)


def _record_step(files: set[str], step_files: set[str]) -> None:
    """Add to ``step_files`` the files executed from the third forward pass to the end of its update."""
    import torch
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps_done = 0
    has_begun = False

    def begin(module: torch.nn.Module, _: Any) -> None:
        nonlocal has_begun
        if not has_begun and steps_done == STEP - 1 and module.training and torch.is_grad_enabled():
            has_begun = True
            files.clear()

    def finish(*_: Any) -> None:
        nonlocal steps_done
        steps_done += 1
        if steps_done == STEP:
            step_files.update(files)

    register_module_forward_pre_hook(begin)
    register_optimizer_step_post_hook(finish)


def journey(arguments: list[str], home: str, *, step: bool = False) -> list[str]:
    """Return the files that one command executes, relative to the root."""
    environment = os.environ | {"KMIP_DATA_HOME": home}
    command = [sys.executable, __file__, "step" if step else "whole", *arguments]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = process.stderr.splitlines()
    files = [line.removeprefix(f"{ROOT}/") for line in lines if line.startswith(OURS)]
    if process.returncode or not files:
        raise SystemExit(f"{' '.join(arguments)}: exit {process.returncode}\n{process.stderr}")
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
