"""Errors of a run that ends early, and the command that resumes it."""

from __future__ import annotations

import contextlib
import errno
import shlex
from collections.abc import Iterator
from pathlib import Path

from kmip_data.errors import FULL, DamagedInput, KmipDataError, OutOfResources, UsageError, disk_error
from kmip_data.models.training.machine import is_main_process
from kmip_data.models.training.memory import out_of_memory
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import Diverged
from kmip_data.runtime import memory
from kmip_data.runtime.memory import is_out_of_memory
from kmip_data.runtime.progress import say


class DidNotFit(OutOfResources):
    """Memory ended before this process had saved anything of its run."""


@contextlib.contextmanager
def explained(loop: Loop, folder: Path | None, checkpoint: Path | None) -> Iterator[None]:
    """Turn the error that ends a run into one with a remedy; after a signal, print how to resume.

    What fails inside torch or the loop, before a resumed run has saved anything, is blamed on its
    ``checkpoint``.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_main_process():
            say(f"Stopped; {_saved(loop)}. Continue with: {_resume(folder)}", quiet=loop.quiet)
        raise
    except Exception as error:
        found = _explained(error, loop, folder)
        ours = isinstance(error, KmipDataError | OSError)
        if found is error and checkpoint is not None and not loop.proven and not ours:
            fault = f"{type(error).__name__}: {error}".splitlines()[0]
            found = DamagedInput(
                f"The run cannot be resumed from {checkpoint}: {fault}", next="begin another run"
            )
        if found is error:
            raise
        raise found from error
    finally:
        memory.release()


def _explained(error: Exception, loop: Loop, folder: Path | None) -> Exception:
    config, left = loop.config, f"{folder}; {_saved(loop)}"
    if isinstance(error, Diverged):
        error.parts["on disk"] = left
        lower, build = f"optimiser.lr={config.optimiser.lr / 10:g}", shlex.quote(str(loop.data.build.path))
        error.parts["next"] = (
            f"{_resume(folder)} --set {lower}, or --set training.clip_norm=…; kmip-data verify {build}"
        )
        return error
    cause = error.__cause__ if isinstance(error, OutOfResources) else error
    if isinstance(cause, OSError) and cause.errno in {*FULL, errno.EIO}:
        full = error if isinstance(error, OutOfResources) else disk_error(cause, folder or Path())
        full.parts["on disk"] = left
        full.parts["next"] = f"make room (or mend the disk), then: {_resume(folder)}"
        return full
    if config.system.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        fault = str(error).strip().splitlines()[0]
        return UsageError(f"torch.compile failed: {fault}", left=left, next="--set system.compile=false")
    if is_out_of_memory(error):
        kind = OutOfResources if loop.proven else DidNotFit
        return out_of_memory(error, loop.module, loop.data, kind=kind, left=left)
    return error


def _saved(loop: Loop) -> str:
    epochs, batches = loop.saved
    if batches:
        return f"the checkpoint of epoch {epochs + 1}, after its batch {batches}, is kept"
    return f"the checkpoint after epoch {epochs} is kept" if epochs else "no epoch was finished"


def _resume(folder: Path | None) -> str:
    return f"kmip-data train --resume {shlex.quote(str(folder))}"
