"""Web servers on this machine that play good, odd, slow and hostile hosts."""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Behaviour = Callable[["Handler"], None]
PIECE = 16_384
#: What a client that gives up does to a server.
GONE = (BrokenPipeError, ConnectionResetError, ssl.SSLError)


class Handler(BaseHTTPRequestHandler):
    """Answers as its server says."""

    server: Any
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets

    def do_GET(self) -> None:
        with contextlib.suppress(*GONE):
            self.server.answer(self)

    do_POST = do_GET

    def head(self, code: int, length: int | None = None, **headers: str) -> None:
        self.send_response(code)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def body(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.wfile.write(piece)
            self.server.sent += len(piece)

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Plays the behaviours of a path in turn, the last one from then on; records requests and bytes."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, certificate: Any = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes: dict[str, list[Behaviour]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent = 0
        self.held = threading.Event()  #: set when the test is over: nobody waits longer
        self.scheme = "http" if certificate is None else "https"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def answer(self, handler: Handler) -> None:
        self.requests.append((handler.path, dict(handler.headers)))
        steps = self.routes.get(handler.path, [status(404)])
        (steps.pop(0) if len(steps) > 1 else steps[0])(handler)

    def url(self, path: str, host: str = "localhost") -> str:
        return f"{self.scheme}://{host}:{self.server_port}{path}"

    def route(self, path: str, *steps: Behaviour) -> str:
        self.routes[path] = list(steps)
        return self.url(path)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class FolderServer(Server):
    """Serves a folder, with ranges."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.asked: list[tuple[str, int, int]] = []  #: file, first byte and end of each answer
        self.resets = 0  #: requests that are hung up on from now on
        self.wrong_file, self.wrong_byte = "", 0  #: a byte that is sent with another last bit
        self.ranges, self.more = True, 0  #: ``Range`` is understood; bytes sent beyond what was asked for
        self.lock = threading.Lock()
        self.address = self.url("")

    def answer(self, handler: Handler) -> None:
        path = self.folder / urllib.parse.unquote(handler.path.partition("?")[0]).lstrip("/")
        if not path.is_file():
            status(404)(handler)
            return
        if self.resets > 0:
            self.resets -= 1
            handler.hang_up()
            return
        name, size = path.relative_to(self.folder).as_posix(), path.stat().st_size
        start, stop, headers = 0, size, {}
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
        if given is not None and self.ranges:
            start, stop = int(given[1]), min(size, int(given[2] or size) + 1)
            if start >= size:
                handler.head(416, 0)
                return
            headers = {"Content_Range": f"bytes {start}-{stop - 1}/{size}"}
        handler.head(206 if headers else 200, stop - start + self.more, **headers)
        with self.lock:
            self.asked.append((name, start, stop))
        with path.open("rb") as file:
            file.seek(start)
            data = bytearray(file.read(stop - start))
        if name == self.wrong_file and start <= self.wrong_byte < stop:
            data[self.wrong_byte - start] ^= 1
        handler.body(data)
        handler.wfile.write(bytes(self.more))


def serving(certificate: Any = None) -> AbstractContextManager[Any]:
    """Run a :class:`Server`."""
    return running(Server(certificate))


def serving_folder(folder: Path) -> AbstractContextManager[Any]:
    """Run a :class:`FolderServer`."""
    return running(FolderServer(folder))


@contextlib.contextmanager
def running(server: Any) -> Iterator[Any]:
    """Run a server in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.held.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class File:
    """Serve bytes, with every way to do it wrong."""

    data: bytes
    etag: str | None = '"one"'
    last_modified: str | None = None
    kind: str = "application/zip"
    cut: int | None = None  #: hang up after this many bytes of the file
    ranges: bool = True  #: understand Range
    if_range: bool = True  #: understand If-Range
    length: int | str | None = "true"  #: declare this length instead of the true one; ``None``: none
    shift: int = 0
    pace: float = 0.0  #: seconds between pieces of 16 KiB
    extra: dict[str, str] = field(default_factory=dict)

    def __call__(self, handler: Handler) -> None:
        start, code = self._start(handler)
        stop = len(self.data) if self.cut is None else max(start, self.cut)
        headers = {"Content_Type": self.kind, **self.extra}
        if self.etag:
            headers["ETag"] = self.etag
        if self.last_modified:
            headers["Last_Modified"] = self.last_modified
        if code == 206:
            headers["Content_Range"] = f"bytes {start + self.shift}-{len(self.data) - 1}/{len(self.data)}"
        length = len(self.data) - start if self.length == "true" else self.length
        if length is None:
            headers["Connection"] = "close"
        handler.head(code, length, **headers)
        for at in range(start, stop, PIECE):
            handler.body(self.data[at : min(stop, at + PIECE)])
            if self.pace:
                time.sleep(self.pace)
        if stop < len(self.data) or length != len(self.data) - start:
            handler.hang_up()

    def _start(self, handler: Handler) -> tuple[int, int]:
        wanted = handler.headers.get("Range")
        condition = handler.headers.get("If-Range")
        if not wanted or not self.ranges:
            return 0, 200
        if condition and self.if_range and condition not in {self.etag, self.last_modified}:
            return 0, 200
        return int(wanted.removeprefix("bytes=").removesuffix("-")), 206


def status(code: int, **headers: str) -> Behaviour:
    """Answer with a status and a short text."""

    def step(handler: Handler) -> None:
        text = f"status {code}".encode()
        handler.head(code, len(text), **headers)
        handler.body(text)

    return step


def redirect(url: str, code: int = 302) -> Behaviour:
    """Send elsewhere."""
    return status(code, Location=url)


def page(size: int = 3000) -> Behaviour:
    """Answer 200 with a web page, as dead hosts do."""
    text = b"<!DOCTYPE html><html><title>Sign in</title>".ljust(size, b" ")
    return File(text, kind="text/html; charset=utf-8")


def stall(data: bytes, after: int, seconds: float = 30.0) -> Behaviour:
    """Send ``after`` bytes and then nothing."""

    def step(handler: Handler) -> None:
        handler.head(200, len(data), Content_Type="application/zip", ETag='"one"')
        handler.body(data[:after])
        handler.server.held.wait(seconds)
        handler.hang_up()

    return step


def drip(data: bytes, every: float = 0.05) -> Behaviour:
    """Send the body one byte at a time."""

    def step(handler: Handler) -> None:
        handler.head(200, len(data), Content_Type="application/zip")
        handler.body(data[:600])
        for at in range(600, len(data)):
            handler.body(data[at : at + 1])
            handler.wfile.flush()
            if handler.server.held.wait(every):
                return

    return step


def chunked(data: bytes, cut: int | None = None) -> Behaviour:
    """Send without a length, in chunks; with ``cut`` never the last one."""

    def step(handler: Handler) -> None:
        handler.head(200, None, Transfer_Encoding="chunked", Content_Type="application/zip", ETag='"one"')
        stop = len(data) if cut is None else cut
        for at in range(0, stop, 8192):
            piece = data[at : min(stop, at + 8192)]
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            handler.server.sent += len(piece)
        if cut is None:
            handler.wfile.write(b"0\r\n\r\n")
        handler.hang_up()

    return step
