"""Files at an address: in a folder, on a web server, or anywhere that fsspec supports.

Our own client reads web servers, because fsspec reads a response to its end, even if it never ends.
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
from kmip_data.files.small_files import MAX_BYTES, open_regular_file
from kmip_data.runtime import http_client
from kmip_data.runtime.extras import install_command
from kmip_data.runtime.http_client import RequestFailed
from kmip_data.sharing.push_metadata import (
    BLOCK_BYTES,
    BLOCKS_NAME,
    SHARE_NAME,
    BlockDigests,
    PushIndex,
    damaged_error,
    parse_pushed,
)
from kmip_data.text import address_without_secrets, strip_secrets

PIECE_BYTES = 8 * BLOCK_BYTES  #: bytes requested at a time
#: Maximum number of tries per request: a dataset needs thousands, and any may fail temporarily.
_ATTEMPTS = 5
_MISSING_STATUSES = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})

#: ``session`` of each thread, and ``process_id`` of the process that opened it.
_thread_state = threading.local()


def pull_command(address: str) -> str:
    """Return the command that pulls everything at an address."""
    return f"kmip-data pull {address_without_secrets(address)}, and open the copy"


def file_system(address: str) -> tuple[Any, str]:
    """Return fsspec's file system for an address, cached per process, and the path in it.

    Raises ``UsageError`` if fsspec does not support the address or lacks a package for it.
    """
    import fsspec

    _refuse_lost_slashes(address, fsspec.available_protocols())
    try:
        # An empty string would be the working directory.
        system, root = fsspec.core.url_to_fs(address or "nothing://")
    except Exception as error:  # each file system has errors of its own
        raise UsageError(
            f"{address_without_secrets(address) or 'An empty string'} is not an address that can be"
            " reached from here.",
            expected="a folder, or hf://, s3://, gs:// or https:// with the required packages",
            found=strip_secrets(str(error), address),
            next=f"for hf://, {install_command('hub')}; for s3://, pip install s3fs; "
            "for gs://, pip install gcsfs",
        ) from error
    return system, root.rstrip("/")


def _refuse_lost_slashes(address: str, protocols: Collection[str]) -> None:
    """Raise ``UsageError`` for an address such as ``s3:/bucket``, which would mean a folder ``s3:``."""
    scheme, colon, rest = address.partition(":")
    if scheme in {"file", "local"} or scheme not in protocols:
        return
    if not colon or rest.startswith("//"):
        return
    corrected = f"{scheme}://{rest.lstrip('/')}"
    error = UsageError(
        f"{address} is not an address: it has no :// after {scheme}.", next=corrected
    )
    if corrected == address_without_secrets(corrected):
        error.correction = (address, corrected)
    raise error


class Remote:
    """Files below an address. Failures are ``SourceUnavailable`` with the reason.

    ``address`` is the address without credentials; ``folder`` is the path of a local folder, or
    ``None``. ``retries`` repeats requests after temporary failures. Raises ``UsageError`` if fsspec
    does not support the address.
    """

    def __init__(self, address: str, *, retries: bool = False) -> None:
        self._retries = retries
        self._address = address
        self.address = address_without_secrets(address).rstrip("/")
        self.is_writable = not address.startswith(("http://", "https://"))
        self.folder: Path | None = None
        self._is_hub = False
        if self.is_writable:
            system, root = file_system(address)
            protocols = system.protocol
            if isinstance(protocols, str):
                protocols = (protocols,)
            if "local" in protocols:
                self.folder = Path(root or "/")
            self._is_hub = "hf" in protocols
        self._pending: list[tuple[str, Path | bytes]] | None = None  #: files of the current commit

    def read(self, name: str, max_bytes: int = MAX_BYTES) -> bytes | None:
        """Return the content of a file of at most ``max_bytes``; ``None`` if it does not exist."""

        def read() -> bytes:
            with self._open_at(name, 0) as file:
                return read_exactly(file, max_bytes + 1)

        return self._with_retries(name, read, max_bytes)

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        """Return bytes ``start:stop`` of a file, fewer at its end; ``None`` if it does not exist.

        Raises ``UsageError`` if the server sends only complete files; ``DamagedInput`` if it sends
        more than requested; ``SourceUnavailable`` if it does not respond.
        """
        return self._with_retries(
            name, lambda: self._read_range_once(name, start, stop), stop - start
        )

    def read_pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes ``start:stop`` of a file in pieces of :data:`PIECE_BYTES`."""
        with self._convert_errors(name), self._open_at(name, start) as file:
            while start < stop:
                size = min(PIECE_BYTES, stop - start)
                piece = read_exactly(file, size)
                if len(piece) < size and self.folder is not None:
                    # The file itself is cut: it would be as short if it were read again.
                    raise damaged_error(
                        f"{self.address}/{name}",
                        f"a file of at least {stop:,} bytes",
                        f"{start + len(piece):,} bytes",
                    )
                if len(piece) < size:
                    raise EOFError(f"received {start + len(piece):,} of {stop:,} bytes")
                yield piece
                start += len(piece)

    def _with_retries(self, name: str, read: Callable[[], bytes], max_bytes: int) -> bytes | None:
        """Return the result of ``read``, at most ``max_bytes``; ``None`` if the file does not exist."""
        for attempt in itertools.count(1):
            try:
                with self._convert_errors(name):
                    data = read()
                break
            except SourceUnavailable as error:
                cause = error.__cause__
                if _is_missing(cause):
                    return None
                is_temporary = getattr(cause, "retry", not isinstance(cause, PermissionError))
                if not (self._retries and is_temporary and attempt < _ATTEMPTS):
                    raise
                pause = http_client.RETRY_DELAY_SECONDS * 2 ** (attempt - 1)
                time.sleep(getattr(cause, "wait", None) or pause)
        if len(data) > max_bytes:
            raise damaged_error(f"{self.address}/{name}", f"at most {max_bytes:,} bytes", "more")
        return data

    def _read_range_once(self, name: str, start: int, stop: int) -> bytes:
        if self.folder is not None or not self.is_writable:
            extra = 0 if self.is_writable else 1  # detects a server that sends more than requested
            with self._open_at(name, start, stop) as file:
                return read_exactly(file, stop - start + extra)
        system, root = file_system(self._address)
        # fsspec's cache would request more than needed.
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
        """Collect all writes to a repository of the hub in one commit; yield True if there is one.

        The hub refuses hundreds of commits, one per file.
        """
        system, root = file_system(self._address)
        with self._convert_errors(""):
            location: Any = system.resolve_path(root) if self._is_hub else None
        if not hasattr(location, "repo_id"):  # a bucket of the hub has none
            yield False
            return
        from huggingface_hub import CommitOperationAdd, HfApi

        self._pending = []
        yield True
        folder = f"{location.path_in_repo}/".lstrip("/")
        files = [CommitOperationAdd(folder + name, content) for name, content in self._pending]
        with self._convert_errors(""):
            HfApi().create_commit(
                location.repo_id,
                files,
                repo_type=location.repo_type,
                revision=location.revision,
                commit_message=message,
            )
            system.invalidate_cache()

    def list_files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file, except hidden ones at the top level."""
        system, root = file_system(self._address)
        with self._convert_errors(""):
            if self.folder is not None:
                yield from _files_below(self.folder)
                return
            system.invalidate_cache()
            with contextlib.suppress(FileNotFoundError):
                for path, status in system.find(root, detail=True).items():
                    name = path.removeprefix(root).lstrip("/")
                    is_folder_marker = name.endswith("/")
                    if name and not name.startswith(".") and not is_folder_marker:
                        yield name, int(status.get("size") or 0)

    def write_file(self, name: str, content: Path | bytes) -> None:
        """Write a file from a path or from bytes."""
        if self._pending is not None:
            self._pending.append((name, content))
            return
        system, root = file_system(self._address)
        with self._convert_errors(name):
            if self.folder is not None:
                make_parent_folder(name, self.folder)
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
        """Open a file at ``start``: as one stream from the beginning, otherwise with range requests."""
        if self.folder is not None:
            with open_regular_file(self.folder / name) as local:  # never blocks on a pipe
                local.seek(start)
                yield local
            return
        if not self.is_writable:
            with self._open_stream(name, start, stop) as stream:
                yield stream
            return
        system, root = file_system(self._address)
        is_stream = not start and self._is_hub
        with system.open(
            f"{root}/{name}",
            "rb",
            block_size=0 if is_stream else PIECE_BYTES,
        ) as file:
            if start:
                file.seek(start)
            yield file

    @contextlib.contextmanager
    def _open_stream(self, name: str, start: int, stop: int | None) -> Iterator[object]:
        """Open a file of a web server as one stream, with a time limit that depends on its size.

        With ``stop``, request only bytes before it; ``UsageError`` if the server has no ranges.
        """
        base, mark, query = self._address.partition("#")[0].partition("?")
        url = f"{base.rstrip('/')}/{urllib.parse.quote(name)}{mark}{query}"
        headers = {}
        is_range = bool(start) or stop is not None
        if is_range:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        with http_client.open_response(
            url,
            headers,
            _session_of_thread(),
        ) as response:
            if response.status_code in _MISSING_STATUSES:
                # A redirection to an address without the file does not mean that it is missing here.
                if response.url != requests.Request("GET", url).prepare().url:
                    raise RequestFailed("redirects to an address without this file")
                raise FileNotFoundError(f"{self.address}/{name} answers {response.status_code}")
            is_past_end = response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            if stop is not None and is_past_end:
                yield io.BytesIO()
                return
            if not response.ok:
                raise http_client.failure_of_status(response)
            size = 0
            if is_range:
                size = self._range_size(response, start, stop)
            yield _ResponseBody(http_client.response_body(response), size)

    def _range_size(
        self,
        response: requests.Response,
        start: int,
        stop: int | None,
    ) -> int:
        """Return the size of the response to a range from ``start``; raise an error for other responses."""
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            if stop is None:
                raise RequestFailed("sends only complete files")
            raise UsageError(
                f"{self.address} cannot be read remotely: its server sends only complete files.",
                next=pull_command(self.address),
            )
        sent_range = http_client.parse_content_range(response)
        if sent_range is None or sent_range[0] != start:
            raise RequestFailed("sends other bytes than requested")
        return sent_range[1] + 1 - start

    @contextlib.contextmanager
    def _convert_errors(self, name: str) -> Iterator[None]:
        """Convert any exception to ``SourceUnavailable``, because file systems have their own classes."""
        try:
            yield
        except KmipDataError:
            raise
        except Exception as error:
            cause = error.__cause__ or error  # fsspec hides responses behind FileNotFoundError
            reason = f"{type(cause).__name__}: {cause}"
            if isinstance(error, RequestFailed):
                reason = error.reason
            reason = strip_secrets(reason, self._address)
            raise SourceUnavailable(
                f"{self.address}/{name} cannot be reached.",
                found=" ".join(reason.split())[:300],
                next="check address, network and credentials, then run the same command, which resumes",
            ) from error


class _ResponseBody:
    """File-like body of a response of at least ``size`` bytes."""

    def __init__(self, pieces: Iterator[bytes], size: int) -> None:
        self._pieces = pieces
        self._unread = b""
        self._missing_bytes = size

    def read(self, count: int) -> bytes:
        """Return at most ``count`` bytes; none at the end."""
        piece = self._unread or next(self._pieces, b"")
        data = piece[:count]
        self._unread = piece[count:]
        self._missing_bytes -= len(data)
        if not data and self._missing_bytes > 0:
            raise RequestFailed("cut the connection", retry=True)
        return data


def read_push_index(remote: Remote) -> tuple[PushIndex, BlockDigests]:
    """Return the index of a push and the digests of its blocks.

    Raises ``UsageError`` if nothing was pushed; ``DamagedInput`` if they differ from the push.
    """
    data = remote.read(SHARE_NAME)
    if data is None:
        raise UsageError(
            f"{remote.address} has no {SHARE_NAME}: nothing was pushed there, or the push is incomplete.",
            next="correct the address, which must be the pushed folder; "
            "or ask whoever pushed to push again",
        )
    index = parse_pushed(data, PushIndex, f"{remote.address}/{SHARE_NAME}")
    blocks = remote.read(BLOCKS_NAME, index.blocks_bytes) or b""
    return index, BlockDigests(index, blocks, remote.address)


def _session_of_thread() -> http_client.Session:
    """Return the session of this thread; a forked child must not use its parent's connections."""
    if getattr(_thread_state, "process_id", None) != os.getpid():
        _thread_state.process_id = os.getpid()
        _thread_state.session = http_client.Session()
    session: http_client.Session = _thread_state.session
    return session


def _is_missing(error: BaseException | None) -> bool:
    """True if the error means that the file does not exist; for the hub, a 404 response."""
    for cause in (error, getattr(error, "__cause__", None)):
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if status is not None:
            return bool(status == HTTPStatus.NOT_FOUND)
    return isinstance(error, FileNotFoundError | NotADirectoryError)


def _files_below(folder: Path) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            file = path.relative_to(folder).as_posix()
            if not file.startswith("."):
                yield file, path.lstat().st_size


def make_parent_folder(file: str, root: Path) -> None:
    """Create ``root`` and the folder of ``file`` below it if they are missing."""
    with convert_write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        if "/" in file:
            make_folder((root / file).parent, root=root)


def read_blocks(content: Path | bytes) -> Iterator[bytes]:
    """Yield the blocks of a file on disk or in memory."""
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular_file(content) as file:
        while block := read_exactly(file, BLOCK_BYTES):
            yield block


def read_exactly(file: Any, count: int) -> bytes:
    """Read ``count`` bytes, or fewer at the end; a single read of a stream may return fewer."""
    data = bytearray()
    while len(data) < count and (piece := file.read(min(PIECE_BYTES, count - len(data)))):
        data += piece
    return bytes(data)
