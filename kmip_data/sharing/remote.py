"""Files at an address: a folder, a web server, or anything that fsspec reaches.

Web servers are read by our own client: fsspec reads a response to its end, even if it never ends.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests

from kmip_data.errors import KmipDataError, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import make_folder, remove_file, write_file
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.reading import MAX_BYTES, open_regular_file
from kmip_data.runtime import http_client
from kmip_data.runtime.extras import install_command
from kmip_data.runtime.http_client import MirrorFailed
from kmip_data.sharing.push_files import (
    BLOCK,
    BLOCKS_NAME,
    SHARE_NAME,
    BlockDigests,
    Share,
    damaged_error,
    parse_pushed,
)
from kmip_data.text import address_without_secrets, strip_secrets

PIECE = 8 * BLOCK  #: bytes requested at a time
#: Tries per request: a dataset takes thousands, and any may hit a temporary failure.
_ATTEMPTS = 5
_MISSING = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})

_of_thread = threading.local()  #: ``session`` of a thread and ``owner``, the process that opened it


def pull_command(address: str) -> str:
    """Return the command that copies everything at an address to this machine."""
    return f"kmip-data pull {address_without_secrets(address)}, and open the copy"


def file_system(address: str) -> tuple[Any, str]:
    """Return fsspec's file system for an address, cached per process, and the path in it.

    Raises ``UsageError`` where fsspec knows no such address, or lacks the package for it.
    """
    import fsspec

    _refuse_lost_slashes(address, fsspec.available_protocols())
    try:
        # An empty text would be the working folder.
        system, root = fsspec.core.url_to_fs(address or "nothing://")
    except Exception as error:  # each file system has errors of its own
        raise UsageError(
            f"{address_without_secrets(address) or 'An empty text'} is not an address that can be reached"
            " from here.",
            expected="a folder, or hf://, s3://, gs://, https:// with the packages for it",
            found=strip_secrets(str(error), address),
            next=f"{install_command('hub')} (hf://), or pip install s3fs (s3://) or gcsfs (gs://)",
        ) from error
    return system, root.rstrip("/")


def _refuse_lost_slashes(address: str, protocols: Collection[str]) -> None:
    """Raise ``UsageError`` for an address such as ``s3:/bucket``, which would be a folder ``s3:``."""
    scheme, colon, rest = address.partition(":")
    if scheme in {"file", "local"} or scheme not in protocols:
        return
    if not colon or rest.startswith("//"):
        return
    meant = f"{scheme}://{rest.lstrip('/')}"
    error = UsageError(f"{address} is not an address: it has no :// after {scheme}.", next=meant)
    if meant == address_without_secrets(meant):
        error.correction = (address, meant)
    raise error


class Remote:
    """Files below an address; failures are ``SourceUnavailable`` with the reason.

    ``address`` is the address without credentials; ``folder`` is the path of a local folder, else
    ``None``. A ``patient`` client retries temporary failures. Raises ``UsageError`` if fsspec does
    not know the address.
    """

    def __init__(self, address: str, *, patient: bool = False) -> None:
        self._patient = patient
        self._address = address
        self.address = address_without_secrets(address).rstrip("/")
        self.writable = not address.startswith(("http://", "https://"))
        self.folder: Path | None = None
        self._is_hub = False
        if self.writable:
            system, root = file_system(address)
            protocols = system.protocol
            if isinstance(protocols, str):
                protocols = (protocols,)
            if "local" in protocols:
                self.folder = Path(root or "/")
            self._is_hub = "hf" in protocols
        self._pending: list[tuple[str, Path | bytes]] | None = None  #: files of one commit

    def read(self, name: str, most: int = MAX_BYTES) -> bytes | None:
        """Return the bytes of a file of at most ``most`` bytes; ``None`` if it does not exist."""

        def read() -> bytes:
            with self._open_at(name, 0) as file:
                return read_exactly(file, most + 1)

        return self._with_retries(name, read, most)

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        """Return bytes ``start`` to ``stop`` of a file.

        Returns fewer if the file ends earlier, and ``None`` if it does not exist.

        Raises ``UsageError`` where the server sends whole files only; ``DamagedInput`` where it
        gives more than asked for; ``SourceUnavailable`` where it does not answer.
        """
        return self._with_retries(
            name, lambda: self._read_range_once(name, start, stop), stop - start
        )

    def read_pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes ``start`` to ``stop`` of a file, each but the last :data:`PIECE` long."""
        with self._convert_errors(name), self._open_at(name, start) as file:
            while start < stop:
                size = min(PIECE, stop - start)
                piece = read_exactly(file, size)
                if len(piece) < size:
                    raise EOFError(f"{start + len(piece):,} of {stop:,} bytes came")
                yield piece
                start += len(piece)

    def _with_retries(self, name: str, read: Callable[[], bytes], most: int) -> bytes | None:
        """Return the result of ``read``, at most ``most`` bytes; ``None`` if there is no file."""
        for attempt in itertools.count(1):
            try:
                with self._convert_errors(name):
                    data = read()
                break
            except SourceUnavailable as error:
                cause = error.__cause__
                if _is_missing(cause):
                    return None
                passes = getattr(cause, "retry", not isinstance(cause, PermissionError))
                if not (self._patient and passes and attempt < _ATTEMPTS):
                    raise
                pause = http_client.PAUSE_SECONDS * 2 ** (attempt - 1)
                time.sleep(getattr(cause, "wait", None) or pause)
        if len(data) > most:
            raise damaged_error(f"{self.address}/{name}", f"at most {most:,} bytes", "more")
        return data

    def _read_range_once(self, name: str, start: int, stop: int) -> bytes:
        if self.folder is not None or not self.writable:
            extra = 0 if self.writable else 1  # a server that sends more than requested is faulty
            with self._open_at(name, start, stop) as file:
                return read_exactly(file, stop - start + extra)
        system, root = file_system(self._address)
        # A cache of fsspec's would request more than is needed.
        options = {} if system.async_impl else {"cache_type": "none"}
        return bytes(
            system.cat_file(
                f"{root}/{name}",
                start=start,
                end=stop,
                **options,
            )
        )

    @contextlib.contextmanager
    def batch_writes(self, message: str) -> Iterator[bool]:
        """In a repository of the hub, collect the writes of the block in one commit and yield True.

        The hub refuses hundreds of commits, one per file.
        """
        system, root = file_system(self._address)
        with self._convert_errors(""):
            known: Any = system.resolve_path(root) if self._is_hub else None
        if not hasattr(known, "repo_id"):  # a bucket of the hub has none
            yield False
            return
        from huggingface_hub import CommitOperationAdd, HfApi

        self._pending = []
        yield True
        folder = f"{known.path_in_repo}/".lstrip("/")
        files = [CommitOperationAdd(folder + name, content) for name, content in self._pending]
        with self._convert_errors(""):
            HfApi().create_commit(
                known.repo_id,
                files,
                repo_type=known.repo_type,
                revision=known.revision,
                commit_message=message,
            )
            system.invalidate_cache()

    def list_files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file except hidden ones at the top."""
        system, root = file_system(self._address)
        with self._convert_errors(""):
            if self.folder is not None:
                yield from _files_below(self.folder)
                return
            system.invalidate_cache()
            with contextlib.suppress(FileNotFoundError):
                for path, status in system.find(root, detail=True).items():
                    name = path.removeprefix(root).lstrip("/")
                    marks_folder = name.endswith("/")
                    if name and not name.startswith(".") and not marks_folder:
                        yield name, int(status.get("size") or 0)

    def write_file(self, name: str, content: Path | bytes) -> None:
        """Write a file from a path or from bytes."""
        if self._pending is not None:
            self._pending.append((name, content))
            return
        system, root = file_system(self._address)
        with self._convert_errors(name):
            if self.folder is not None:
                make_folder_of(name, self.folder)
                write_file(self.folder / name, read_blocks(content), root=self.folder)
            elif isinstance(content, bytes):
                system.pipe_file(f"{root}/{name}", content)
            else:
                system.put_file(str(content), f"{root}/{name}")

    def remove_file(self, name: str) -> None:
        """Remove a file that this package wrote."""
        system, root = file_system(self._address)
        with self._convert_errors(name):
            if self.folder is not None:
                remove_file(self.folder / name, root=self.folder)
            else:
                system.rm_file(f"{root}/{name}")

    @contextlib.contextmanager
    def _open_at(self, name: str, start: int, stop: int | None = None) -> Iterator[object]:
        """Open a file at ``start``: from the beginning as one stream, from elsewhere with ranges."""
        if self.folder is not None:
            with open_regular_file(self.folder / name) as local:  # does not wait for a pipe
                local.seek(start)
                yield local
            return
        if not self.writable:
            with self._open_stream(name, start, stop) as stream:
                yield stream
            return
        system, root = file_system(self._address)
        streamed = not start and self._is_hub
        with system.open(
            f"{root}/{name}",
            "rb",
            block_size=0 if streamed else PIECE,
        ) as file:
            if start:
                file.seek(start)
            yield file

    @contextlib.contextmanager
    def _open_stream(self, name: str, start: int, stop: int | None) -> Iterator[object]:
        """Open a file of a web server as one stream, with a time limit by its bytes.

        With ``stop`` only bytes up to it are requested, and a server without ranges is refused.
        """
        base, mark, query = self._address.partition("#")[0].partition("?")
        url = f"{base.rstrip('/')}/{urllib.parse.quote(name)}{mark}{query}"
        headers = {}
        partial = bool(start) or stop is not None
        if partial:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        with http_client.open_response(
            url,
            headers,
            _session_of_thread(),
        ) as response:
            if response.status_code in _MISSING:
                # Redirected to an address without this file, which says nothing about this one.
                if response.url != requests.Request("GET", url).prepare().url:
                    raise MirrorFailed("redirects to an address without this file")
                raise FileNotFoundError(f"{self.address}/{name} answers {response.status_code}")
            past_end = response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            if stop is not None and past_end:
                yield io.BytesIO()
                return
            if not response.ok:
                raise http_client.failure_of_status(response)
            size = 0
            if partial:
                size = self._partial_size(response, start, stop)
            yield _Body(http_client.response_body(response), size)

    def _partial_size(
        self,
        response: requests.Response,
        start: int,
        stop: int | None,
    ) -> int:
        """Return the number of bytes of a response to a range from ``start``; refuse any other response."""
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            if stop is None:
                raise MirrorFailed("sends whole files only")
            raise UsageError(
                f"{self.address} cannot be read remotely: its server sends whole files only.",
                next=pull_command(self.address),
            )
        sent = http_client.parse_content_range(response)
        if sent is None or sent[0] != start:
            raise MirrorFailed("sends other bytes than requested")
        return sent[1] + 1 - start

    @contextlib.contextmanager
    def _convert_errors(self, name: str) -> Iterator[None]:
        """Convert any exception of a file system to ``SourceUnavailable``: each has its own classes."""
        try:
            yield
        except KmipDataError:
            raise
        except Exception as error:
            cause = error.__cause__ or error  # fsspec hides a server's response behind "no file"
            reason = f"{type(cause).__name__}: {cause}"
            if isinstance(error, MirrorFailed):
                reason = error.reason
            reason = strip_secrets(reason, self._address)
            raise SourceUnavailable(
                f"{self.address}/{name} cannot be reached.",
                found=" ".join(reason.split())[:300],
                next="check address, network and credentials, then run the same command, which resumes",
            ) from error


class _Body:
    """The body of a response of at least ``size`` bytes as a file."""

    def __init__(self, pieces: Iterator[bytes], size: int) -> None:
        self._pieces = pieces
        self._rest = b""
        self._size = size

    def read(self, count: int) -> bytes:
        """Return at most ``count`` bytes, none at the end."""
        piece = self._rest or next(self._pieces, b"")
        data = piece[:count]
        self._rest = piece[count:]
        self._size -= len(data)
        if not data and self._size > 0:
            raise MirrorFailed("cut the connection", retry=True)
        return data


def read_share(remote: Remote) -> tuple[Share, BlockDigests]:
    """Return the manifest of a push and the digests of its blocks.

    Raises ``UsageError`` where nothing was pushed, ``DamagedInput`` where they are not what was
    pushed.
    """
    data = remote.read(SHARE_NAME)
    if data is None:
        raise UsageError(
            f"Nothing was pushed to {remote.address}, or the push has not ended: "
            f"there is no {SHARE_NAME}.",
            next="correct the address, which must lead to the folder; "
            "or ask whoever pushed to push again",
        )
    share = parse_pushed(data, Share, f"{remote.address}/{SHARE_NAME}")
    blocks = remote.read(BLOCKS_NAME, share.blocks_bytes) or b""
    return share, BlockDigests(share, blocks, remote.address)


def _session_of_thread() -> http_client.Session:
    # A forked child shares no connection with its parent.
    if getattr(_of_thread, "owner", None) != os.getpid():
        _of_thread.owner = os.getpid()
        _of_thread.session = http_client.Session()
    session: http_client.Session = _of_thread.session
    return session


def _is_missing(error: BaseException | None) -> bool:
    """True if the error means that the file does not exist; for the hub, that its server answered so."""
    for cause in (error, getattr(error, "__cause__", None)):
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if status is not None:
            return bool(status == HTTPStatus.NOT_FOUND)
    return isinstance(error, FileNotFoundError)


def _files_below(folder: Path) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            file = path.relative_to(folder).as_posix()
            if not file.startswith("."):
                yield file, path.lstat().st_size


def make_folder_of(file: str, root: Path) -> None:
    """Make ``root`` and the folder of a file below it, where they are missing."""
    with convert_write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        if "/" in file:
            make_folder((root / file).parent, root=root)


def read_blocks(content: Path | bytes) -> Iterator[bytes]:
    """Yield the blocks of a file, on disk or in memory."""
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular_file(content) as file:
        while block := read_exactly(file, BLOCK):
            yield block


def read_exactly(file: Any, count: int) -> bytes:
    """Read ``count`` bytes, fewer only at the end: one read of a stream may bring less."""
    data = bytearray()
    while len(data) < count and (piece := file.read(min(PIECE, count - len(data)))):
        data += piece
    return bytes(data)
