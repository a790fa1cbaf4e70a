"""Files at an address of a push or pull: a folder, a web server, or anything that fsspec reaches."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from kmip_data.errors import KmipDataError, SourceUnavailable
from kmip_data.files.changes import make_folder, remove_file, write_file
from kmip_data.files.errors import writing
from kmip_data.files.small import MAX_BYTES, open_regular
from kmip_data.runtime.http_client import MirrorFailed, Patience, body, content_range, from_status
from kmip_data.sharing.addresses import file_system
from kmip_data.sharing.ranges import is_http, open_http
from kmip_data.sharing.share import BLOCK, damaged
from kmip_data.wording import shown_address, without_secrets

PIECE: Final = 8 * BLOCK  #: bytes requested at a time


class Place:
    """Files below an address; what fails there is ``SourceUnavailable`` with the reason.

    A folder is written to as all folders of this package are, files whole or not at all; ``folder`` is its
    path, ``None`` elsewhere. Raises ``UsageError`` where fsspec knows no such address.
    """

    def __init__(self, address: str) -> None:
        self._target, self.address = address, shown_address(address).rstrip("/")
        self.folder: Path | None = None
        self.writable = not is_http(address)
        if self.writable:
            from fsspec.implementations.local import LocalFileSystem

            self._fs, root = file_system(address)
            self._root = root.rstrip("/")
            self.folder = Path(root) if isinstance(self._fs, LocalFileSystem) else None
        self._pending: list[tuple[str, Path | bytes]] | None = None  #: for one commit

    def read(self, name: str, most: int = MAX_BYTES) -> bytes | None:
        """Return the bytes of a file of at most ``most`` bytes; ``None`` where there is none."""
        with self._asked(name):
            try:
                with self._opened(name, 0) as file:
                    data = exactly(file, most + 1)
            except Exception as error:
                if _is_missing(error):
                    return None
                raise
        if len(data) > most:
            raise damaged(f"{self.address}/{name}", f"at most {most:,} bytes", "more")
        return data

    def pieces(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes ``start`` to ``stop`` of a file, each but the last :data:`PIECE` long."""
        with self._asked(name), self._opened(name, start) as file:
            while start < stop:
                piece = exactly(file, size := min(PIECE, stop - start))
                if len(piece) < size:
                    raise EOFError(f"{start + len(piece):,} of {stop:,} bytes came")
                yield piece
                start += len(piece)

    @contextlib.contextmanager
    def at_once(self, message: str) -> Iterator[bool]:
        """Collect what is written in the block into one commit, if the address is a repository of the hub.

        One commit a file would be hundreds, which the hub refuses. Yields True for such a repository.
        """
        with self._asked(""):
            known: Any = self._fs.resolve_path(self._root) if self._is_hub else None
        if not hasattr(known, "repo_id"):  # a bucket of the hub has none
            yield False
            return
        from huggingface_hub import CommitOperationAdd, HfApi

        self._pending = []
        yield True
        inside = f"{known.path_in_repo}/".lstrip("/")
        files = [
            CommitOperationAdd(inside + name, content if isinstance(content, bytes) else str(content))
            for name, content in self._pending
        ]
        with self._asked(""):
            HfApi().create_commit(
                known.repo_id,
                files,
                commit_message=message,
                repo_type=known.repo_type,
                revision=known.revision,
            )
            self._fs.invalidate_cache()

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size in bytes of each file there; hidden ones at the top (``.git``) are left out.

        In a folder a link is a file of unknown size (-1), whatever it leads to.
        """
        with self._asked(""):
            if self.folder is not None:
                yield from _files_below(self.folder)
                return
            self._fs.invalidate_cache()
            with contextlib.suppress(FileNotFoundError):
                for path, about in self._fs.find(self._root, detail=True).items():
                    name = path.removeprefix(self._fs._strip_protocol(self._root)).lstrip("/")  # noqa: SLF001
                    if name and not name.startswith(".") and not name.endswith("/"):  # a mark of a folder
                        yield name, int(about.get("size") or 0)

    def put(self, name: str, content: Path | bytes) -> None:
        """Write a file, from another or from memory."""
        if self._pending is not None:
            self._pending.append((name, content))
            return
        with self._asked(name):
            if self.folder is not None:
                folder_for(name, self.folder)
                write_file(self.folder / name, blocks_of(content), root=self.folder)
            elif isinstance(content, bytes):
                self._fs.pipe_file(f"{self._root}/{name}", content)
            else:
                self._fs.put_file(str(content), f"{self._root}/{name}")

    def remove(self, name: str) -> None:
        """Remove a file that this package has put there."""
        with self._asked(name):
            if self.folder is not None:
                remove_file(self.folder / name, root=self.folder)
            else:
                self._fs.rm_file(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _opened(self, name: str, start: int) -> Iterator[Any]:
        """Open a file at ``start``: as one stream from its beginning, with ranges from elsewhere."""
        if self.folder is not None:
            with open_regular(self.folder / name) as local:
                local.seek(start)
                yield local
            return
        if not self.writable:
            with self._streamed(name, start) as stream:
                yield stream
            return
        streamed = not start and self._is_hub
        with self._fs.open(f"{self._root}/{name}", "rb", block_size=0 if streamed else PIECE) as file:
            if start:
                file.seek(start)
            yield file

    @contextlib.contextmanager
    def _streamed(self, name: str, start: int) -> Iterator[Any]:
        """Open a file of a web server as one stream, within the time that its bytes may take."""
        patience = Patience.from_environment()
        headers = {"Range": f"bytes={start}-"} if start else {}
        with open_http(self._target, name, headers, patience) as response:
            if not response.ok:
                raise from_status(response, 0)
            told = content_range(response)
            if start and (
                response.status_code != HTTPStatus.PARTIAL_CONTENT or told is None or told[0] != start
            ):
                raise MirrorFailed("gives whole files only")
            yield io.BufferedReader(_Body(body(response, patience)), PIECE)

    @property
    def _is_hub(self) -> bool:
        kinds = self._fs.protocol
        return "hf" in ({kinds} if isinstance(kinds, str) else kinds)

    @contextlib.contextmanager
    def _asked(self, name: str) -> Iterator[None]:
        """Turn any exception of a file system into ``SourceUnavailable``: each has classes of its own."""
        try:
            yield
        except KmipDataError:
            raise
        except Exception as error:
            told = error.__cause__ or error  # of a server's answer fsspec says only that there is no file
            found = error.reason if isinstance(error, MirrorFailed) else f"{type(told).__name__}: {told}"
            raise SourceUnavailable(
                f"{self.address}/{name} cannot be reached.",
                expected="a file that may be read, or a place that may be written to",
                found=without_secrets(found, self._target),
                left="what was finished before",
                next="check address, network and credentials; the same command goes on",
            ) from error


class _Body(io.RawIOBase):
    """The body of an answer as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        self._rest = self._rest or next(self._pieces, b"")
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _is_missing(error: Exception) -> bool:
    """True if this says that there is no such file; of the hub, that its server answered so."""
    for one in (error, error.__cause__):
        if (response := getattr(one, "response", None)) is not None:
            return bool(getattr(response, "status_code", None) == HTTPStatus.NOT_FOUND)
    return isinstance(error, FileNotFoundError)


def _files_below(folder: Path, inside: str = "") -> Iterator[tuple[str, int]]:
    """Yield the files below a folder, if there is one, in the order of their names."""
    if not inside and not os.path.lexists(folder):
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if inside or not entry.name.startswith("."):
                yield from _files_below(Path(entry.path), f"{inside}{entry.name}/")
        elif inside or not entry.name.startswith("."):
            regular = entry.is_file(follow_symlinks=False)
            yield inside + entry.name, entry.stat(follow_symlinks=False).st_size if regular else -1


def folder_for(file: str, root: Path) -> None:
    """Make ``root`` and the folder of a file below it, where they are missing."""
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        if "/" in file:
            make_folder((root / file).parent, root=root)


def blocks_of(content: Path | bytes) -> Iterator[bytes]:
    """Yield the blocks of a file, on disk or in memory."""
    with io.BytesIO(content) if isinstance(content, bytes) else open_regular(content) as file:
        while block := exactly(file, BLOCK):
            yield block


def exactly(file: Any, count: int) -> bytes:
    """Read ``count`` bytes, fewer only at the end: one read of a stream may bring less."""
    data = bytearray()
    while len(data) < count and (piece := file.read(min(PIECE, count - len(data)))):
        data += piece
    return bytes(data)
