"""Files at an address: in a folder, on a web server, or anywhere that fsspec supports.

Our own client reads web servers, because fsspec follows a redirect from https to http and ends a
download after five minutes.
"""

from __future__ import annotations

import contextlib
import io
import urllib.parse
from collections.abc import Collection, Generator, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kmip_data.errors import SAME_AGAIN, KmipDataError, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import make_folder, write_file
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import MAX_BYTES, open_regular_file
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import RequestFailed
from kmip_data.sharing.push_index import SHARE_NAME, PushIndex, damaged_error, parse_pushed
from kmip_data.text import address_without_secrets, strip_secrets

_BLOCK_BYTES = 2**23  #: bytes of a file that are held in memory


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
            steps="install the package: huggingface_hub for hf://, s3fs for s3://, gcsfs for gs://",
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
        f"{address} is not an address: it has no :// after {scheme}.", steps=corrected
    )
    if corrected == address_without_secrets(corrected):
        error.correction = (address, corrected)
    raise error


class Remote:
    """Files below an address. Failures are ``SourceUnavailable`` with the reason.

    ``address`` is the address without credentials; ``folder`` is the path of a local folder, or
    ``None``. Raises ``UsageError`` if fsspec does not support the address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.address = address_without_secrets(address).rstrip("/")
        self.folder: Path | None = None
        self._system: Any = None  # of fsspec; none for a web server
        self._is_hub = False
        if not address.startswith(("http://", "https://")):
            self._system, self._root = file_system(address)
            protocols = self._system.protocol
            if isinstance(protocols, str):
                protocols = (protocols,)
            if "local" in protocols:
                self.folder = Path(self._root or "/")
            self._is_hub = "hf" in protocols
        self.is_writable = self._system is not None
        self._session = http_client.Session()
        self._pending: list[tuple[str, Path | bytes]] | None = None  #: files of the current commit

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; ``None`` if it does not exist."""
        try:
            return b"".join(self.stream(name, MAX_BYTES))
        except SourceUnavailable as error:
            if _is_missing(error.__cause__):
                return None
            raise

    def stream(self, name: str, max_bytes: int) -> Iterator[bytes]:
        """Yield a file in blocks; ``DamagedInput`` as soon as it has more than ``max_bytes``."""
        size = 0
        with self._convert_errors(name), contextlib.closing(self._stream(name)) as blocks:
            for block in blocks:
                size += len(block)
                if size > max_bytes:
                    raise damaged_error(
                        f"{self.address}/{name}", f"at most {max_bytes:,} bytes", "more"
                    )
                yield block

    def _stream(self, name: str) -> Generator[bytes, None, None]:
        if self.folder is not None:
            yield from read_blocks(self.folder / name)
        elif self._system is None:
            yield from self._stream_response(name)
        else:
            # The hub streams only files that are opened without blocks.
            size = 0 if self._is_hub else _BLOCK_BYTES
            with self._system.open(f"{self._root}/{name}", "rb", block_size=size) as file:
                while block := file.read(_BLOCK_BYTES):
                    yield block

    def _stream_response(self, name: str) -> Iterator[bytes]:
        base, mark, query = self._address.partition("#")[0].partition("?")
        url = f"{base.rstrip('/')}/{urllib.parse.quote(name)}{mark}{query}"
        with http_client.open_response(url, {}, self._session) as response:
            if response.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise FileNotFoundError(f"{self.address}/{name} answers {response.status_code}")
            if not response.ok:
                raise http_client.failure_of_status(response)
            yield from http_client.response_body(response)

    def read_index(self) -> PushIndex | None:
        """Return the index of a push, ``None`` without one; ``DamagedInput`` if it was changed."""
        data = self.read(SHARE_NAME)
        if data is None:
            return None
        return parse_pushed(data, PushIndex, f"{self.address}/{SHARE_NAME}")

    @contextlib.contextmanager
    def batch_writes(self, message: str) -> Iterator[bool]:
        """Collect all writes to a repository of the hub in one commit; yield True if there is one.

        The hub refuses hundreds of commits, one per file.
        """
        with self._convert_errors(""):
            location: Any = self._system.resolve_path(self._root) if self._is_hub else None
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
            self._system.invalidate_cache()

    def list_files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of each file, except hidden ones at the top level."""
        with self._convert_errors(""), contextlib.suppress(FileNotFoundError):
            self._system.invalidate_cache()
            for path, status in self._system.find(self._root, detail=True).items():
                name = path.removeprefix(self._root).lstrip("/")
                is_folder_marker = name.endswith("/")
                if name and not name.startswith(".") and not is_folder_marker:
                    yield name, int(status.get("size") or 0)

    def write_file(self, name: str, content: Path | bytes) -> None:
        """Write a file from a path or from bytes."""
        if self._pending is not None:
            self._pending.append((name, content))
            return
        with self._convert_errors(name):
            if self.folder is not None:
                make_parent_folder(name, self.folder)
                write_file(self.folder / name, read_blocks(content), root=self.folder)
            elif isinstance(content, bytes):
                self._system.pipe_file(f"{self._root}/{name}", content)
            else:
                self._system.put_file(str(content), f"{self._root}/{name}")

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
                steps=[
                    "check address, network and credentials; the same command resumes",
                    SAME_AGAIN,
                ],
            ) from error


def _is_missing(error: BaseException | None) -> bool:
    """True if the error means that the file does not exist; for the hub, a 404 response."""
    response = getattr(getattr(error, "__cause__", None) or error, "response", None)
    if response is not None:
        return bool(response.status_code == HTTPStatus.NOT_FOUND)
    return isinstance(error, FileNotFoundError | NotADirectoryError)


def make_parent_folder(file: str, root: Path) -> None:
    """Create ``root`` and the folder of ``file`` below it if they are missing."""
    with convert_write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        if "/" in file:
            make_folder((root / file).parent, root=root)


def read_blocks(content: Path | bytes) -> Iterator[bytes]:
    """Yield the blocks of a file on disk, which is never a pipe, or in memory."""
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular_file(content) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
