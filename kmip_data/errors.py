"""Errors that a user can meet: one class and one exit code for each kind; those of disks and paths.

Every error states what happened, with the value that was found, and what to do next. ``expected``
and ``found`` are given where an option, a file or a server is at fault; ``left`` only where
something was written. The parts are keyword arguments; :func:`str` joins those that are given.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NoReturn

from kmip_data.wording import without_controls, without_secrets

#: Exit codes besides those of the classes: an unexpected error, Ctrl-C, a closed stdout.
UNKNOWN_ERROR = 70
INTERRUPTED = 130
PIPE_CLOSED = 141


class KmipDataError(Exception):
    """Base of all errors that a user can meet; never raised itself.

    Parameters
    ----------
    what
        What happened, in one sentence, with the value that was found.
    expected, found
        What an option, a file or a server should have given, and what it gave.
    left
        What an unfinished command wrote and left on disk. Omit it where nothing was written.
    next
        The command or step that resolves the error.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        left: str | None = None,
        next: str | None = None,  # noqa: A002 -- the word the user reads
    ) -> None:
        # The parts may quote names, headers and replies of servers, so control characters are
        # masked.
        parts = {"expected": expected, "found": found, "on disk": left, "next": next}
        self.what = _shown(what)
        self.parts = {name: text and _shown(text) for name, text in parts.items()}
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {name}: {text}" for name, text in self.parts.items() if text]
        return "\n".join(lines)


def _shown(text: str) -> str:
    return without_controls(without_secrets(str(text)))


class CheckFailed(KmipDataError):
    """A check found something broken (exit code 1)."""


class UsageError(KmipDataError, ValueError):
    """An argument, option, name or configuration key is wrong (exit code 2)."""

    exit_code = 2


class MissingExtra(UsageError):
    """A package is not installed that comes with an extra (exit code 2)."""


class SourceUnavailable(KmipDataError):
    """No mirror, archive or copy of a source is available (exit code 3)."""

    exit_code = 3


class NotReproduced(KmipDataError):
    """A repeated training differs from its published row (exit code 3)."""

    exit_code = 3


class DamagedInput(KmipDataError):
    """Input is damaged, hostile or mislabelled (exit code 4)."""

    exit_code = 4


class LicenseNotAccepted(KmipDataError):
    """A download needs an agreement that was not given (exit code 5)."""

    exit_code = 5


class OutOfResources(KmipDataError):
    """Disk space or memory ran out (exit code 6)."""

    exit_code = 6


class PartialBuildWarning(UserWarning):
    """The build covers only part of the published dataset."""


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[:/]")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: Errors of the path itself; others are the disk's fault.
_WRONG_PLACE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
}


def located(path: str | os.PathLike[str], what: str = "path") -> Path:
    """Return a user's path as an absolute one, with ``~`` expanded; nothing needs to exist there.

    Raises ``UsageError`` if no file can have it: an address, too long, with a zero byte, below an
    unknown user's home or a loop of links.
    """
    if _ADDRESS.match(os.fspath(path)):  # also where a Path has taken one of its slashes
        shown = os.fspath(path)[:200]
        raise UsageError(
            f"{shown} is an address, where a {what} on this machine is expected.",
            next="a path; kmip-data push and pull take addresses",
        )
    try:
        absolute = Path(path).expanduser().absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            absolute.lstat()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"This {what} cannot be used: {str(path)[:200]} ({reason}).") from error
    return absolute


def disk_error(
    error: OSError,
    path: Path,
    *,
    left: str | None,
    needed: int | None = None,
) -> KmipDataError:
    """Return our error for ``error``, met while ``path``, of ``needed`` bytes, was written."""
    reason = error.strerror or str(error)
    if error.errno in _WRONG_PLACE:
        return UsageError(
            f"{path} cannot be written: {reason}.",
            left=left,
            next="choose another place with --home DIR (or KMIP_DATA_HOME) or --output",
        )
    with contextlib.suppress(OSError):
        reason += f"; {shutil.disk_usage(path.parent).free:,} bytes free"
    if needed is not None:
        reason += f", {needed:,} bytes needed"
    full = error.errno in FULL
    return OutOfResources(
        f"There is no room to write {path}." if full else f"{path} could not be written.",
        found=reason,
        left=left,
        next=f"{'free some space' if full else 'check the disk'} (or raise the quota or the limit on file "
        "sizes), or choose another disk with --home DIR (or KMIP_DATA_HOME); then the same command again",
    )


@contextlib.contextmanager
def writing(
    path: Path, *, left: str | None = "nothing was left behind", needed: int | None = None
) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into our error about ``path``, as :func:`disk_error` does."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, left=left, needed=needed) from error


def unreadable(path: Path, error: OSError) -> DamagedInput:
    """Return the error for a file that exists but cannot be read."""
    reason = error.strerror or str(error)
    return DamagedInput(
        f"{path} cannot be read: {reason}.", next="check its permissions and the disk"
    )


def occupied(
    folder: Path,
    expected: str,
    found: str,
    option: str = "--output",
) -> UsageError:
    """Return the error for a folder, given by ``option``, that already holds something else."""
    return UsageError(
        f"{folder} holds something else.",
        expected=expected,
        found=found,
        next=f"give another {option} folder",
    )


def left_in(folder: Path) -> str:
    """Describe what is left of a folder whose files were removed by name."""
    left = folder.is_dir() and any(folder.iterdir())
    return f"in {folder} what kmip-data did not write, and nothing else" if left else "nothing"


def require_room(folder: Path, needed: int, purpose: str) -> None:
    """Raise OutOfResources when ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        sizes = f"{folder} has {human_bytes(free)} of {human_bytes(needed)}"
        raise OutOfResources(
            f"{purpose} does not fit on the disk: {sizes}.",
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )


def human_bytes(count: float) -> str:
    """Return bytes for people, decimal: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def refuse(
    path: Path,
    what: str,
    found: str | Exception,
    *,
    then: str = "",
) -> NoReturn:
    """Raise DamagedInput, or OutOfResources if an error that was met is one; ``then`` is the next step.

    By default that is the repair of a build with the file in ``shards/``, ``splits/`` or
    ``columns/NAME/``.
    """
    build = path.parent.parent
    if build.name == "columns":
        build = build.parent
    error = None
    if isinstance(found, Exception):
        error = found
        check_resources(path, error)
        reason = getattr(error, "strerror", None) or str(error)
        found = " ".join(reason.split())[:200] or type(error).__name__
    if isinstance(error, KmipDataError) and error.parts["found"]:
        found = f"{error.what} ({error.parts['found']})"
    raise DamagedInput(
        f"{path} {what}.",
        found=found,
        next=then or f"kmip-data verify {build} --repair",
    ) from error


def check_resources(path: Path, error: BaseException) -> None:
    """Raise OutOfResources if this process lacks memory or descriptors: the file may be sound."""
    codes = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    lacking = isinstance(error, OSError) and error.errno in codes
    if lacking or isinstance(error, MemoryError):
        raise OutOfResources(
            f"{path} cannot be read now: {str(error) or type(error).__name__}",
            next="close other programs or raise the limit (ulimit -n), and repeat the command",
        ) from error


def check_version(path: Path, version: int | str | None, known: int) -> None:
    """Raise DamagedInput unless a file has the known version of its format."""
    if isinstance(version, int) and version > known:
        raise DamagedInput(
            f"{path} was written by a newer kmip-data: format version {version}, not {known}.",
            next="pip install --upgrade kmip-data",
        )
    if version != known:
        refuse(path, "has no valid format version", repr(version)[:40])


#: Extra of the package -> what must be importable with it.
MODULES = {
    "chem": ("rdkit.Chem",),
    "images": ("skimage", "PIL"),
    "distributed": ("dask", "distributed"),
    "slurm": ("submitit",),
    "parquet": ("pyarrow.parquet",),
    "demo": ("pyrosm",),
    "lightning": ("lightning.pytorch",),
    "lidar": ("laspy", "lazrs"),
}


#: Extra for an NVIDIA GPU -> the cost of training without it.
GPU_EXTRAS = {
    "cuda": "a k-MIP search multiplies every pair (dense): some 100 times as long for 10⁶ keys, by count",
    "gpu": "attention, GatedGCN and norms are PyTorch's operators instead of fused kernels",
}


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation, from wherever that came.

    For an installed clone it has the path of the clone: no index needs to have this package.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("kmip-data").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a checkout on the path
        origin = {"url": Path(__file__).resolve().parents[1].as_uri()}
    url = origin.get("url", "")
    vcs = origin.get("vcs_info", {}).get("vcs")
    folder = url2pathname(urlsplit(url).path) if url.startswith("file://") else ""
    if folder and Path(folder, "setup.py").is_file():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    if folder and "dir_info" in origin:
        return f"pip install '.[{extra}]' in a clone"
    address = f" @ {vcs}+{url}" if vcs else f" @ {url}" if url else ""
    return f"pip install {shlex.quote(f'kmip-data[{extra}]{address}')}"


def require_extra(extra: str | None, what: str) -> None:
    """Raise MissingExtra, with a command, unless the packages of the extra that ``what`` needs are there."""
    for module in MODULES[extra] if extra is not None else ():
        try:
            importlib.import_module(module)
        except ImportError as error:
            package = f"{module.partition('.')[0]} of the extra {extra}"
            raise MissingExtra(
                f"{what} needs the package {package}, which is not installed here.",
                found=str(error),
                next=install_command(str(extra)),
            ) from error
