"""Errors of a run that ends early, and the command that resumes it."""

from __future__ import annotations

import contextlib
import errno
import shlex
from collections.abc import Iterator
from pathlib import Path

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files.errors import FULL, disk_error
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import is_main_process
from kmip_data.models.training.memory import ways_out
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import Diverged, TrainingModule
from kmip_data.runtime import memory
from kmip_data.runtime.memory import is_out_of_memory
from kmip_data.runtime.progress import say

#: Errors that values of another shape or type end in, inside torch or the loop.
_WRONG_VALUES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class DidNotFit(OutOfResources):
    """Memory ended before this process had saved anything of its run."""


def out_of_memory(
    error: Exception,
    module: TrainingModule,
    data: RunData,
    *,
    kind: type[OutOfResources] = OutOfResources,
    left: str | None = None,
) -> OutOfResources:
    """Return the error for an allocation that failed in ``module``, with options that lower its memory."""
    text = str(error).strip() or type(error).__name__
    message = text.splitlines()[0].rpartition("DefaultCPUAllocator: ")[2]
    tips = ["one or more of", *ways_out(module.config, data), "or a machine with more memory"]
    return kind(
        f"Memory ran out while {module.doing}.",
        expected="a batch that fits",
        found=f"a batch of {module.size}; {message}" if module.size else message,
        left=left,
        next="\n    ".join(tips),
    )


@contextlib.contextmanager
def explained(loop: Loop, folder: Path | None, checkpoint: Path | None) -> Iterator[None]:
    """Turn the error that ends a run into one with a remedy; after a signal, print how to resume.

    Errors of wrong values, before a resumed run has saved anything, are blamed on its ``checkpoint``.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_main_process():
            say(f"Stopped; {_saved(loop)}. Continue with: {_resume(folder)}", quiet=loop.quiet)
        raise
    except Exception as error:
        found = _explained(error, loop, folder)
        if found is error and checkpoint is not None and not loop.proven and isinstance(error, _WRONG_VALUES):
            found = error if isinstance(error, KmipDataError) else _unsound(error, checkpoint)
        if found is error:
            raise
        raise found from error
    finally:
        memory.release()


def _explained(error: Exception, loop: Loop, folder: Path | None) -> Exception:
    config, left = loop.config, f"{folder}; {_saved(loop)}"
    if isinstance(error, Diverged):
        error.parts["on disk"] = left
        error.parts["next"] = (
            f"{_resume(folder)} --set optimiser.lr={config.optimiser.lr / 10:g}, or"
            f" --set training.clip_norm=…; to check the data: kmip-data verify"
            f" {shlex.quote(str(loop.data.build.path))}"
        )
        return error
    cause = error.__cause__ if isinstance(error, OutOfResources) else error
    if isinstance(cause, OSError) and cause.errno in {*FULL, errno.EIO}:
        full = error if isinstance(error, OutOfResources) else disk_error(cause, folder or Path())
        full.parts["on disk"] = left
        full.parts["next"] = f"make room (or mend the disk), then: {_resume(folder)}"
        return full
    if config.system.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return UsageError(
            "torch.compile could not compile the model.",
            expected="a C++ compiler, and a version of PyTorch that takes this model",
            found=str(error).strip().splitlines()[0],
            left=left,
            next="--set system.compile=false",
        )
    if is_out_of_memory(error):
        kind = OutOfResources if loop.proven else DidNotFit
        return out_of_memory(error, loop.module, loop.data, kind=kind, left=left)
    return error


def _unsound(error: Exception, checkpoint: Path) -> DamagedInput:
    return DamagedInput(
        f"The run cannot be resumed from {checkpoint}.",
        expected="a checkpoint that kmip-data train wrote with the run's config.toml",
        found=f"{type(error).__name__}: {error}".splitlines()[0],
        next="begin another run",
    )


def _saved(loop: Loop) -> str:
    epochs, batches = loop.saved
    if batches:
        return f"the checkpoint of epoch {epochs + 1}, after its batch {batches}, is kept"
    return f"the checkpoint after epoch {epochs} is kept" if epochs else "no epoch was finished"


def _resume(folder: Path | None) -> str:
    return f"kmip-data train --resume {shlex.quote(str(folder))}"
