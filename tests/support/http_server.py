"""A web server on this machine that plays good, odd and hostile hosts for the fetch tests."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Plays the behaviour of the path; the last one of a list stays."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        steps = self.server.routes.get(self.path)
        if steps is None:
            status(404)(self)
            return
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        # A client that gives up is part of the game.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            step(self)

    def head(self, code: int, length: int | None = None, **headers: str) -> None:
        self.send_response(code)
        if length is not None:
            self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def body(self, data: bytes) -> None:
        for start in range(0, len(data), 16384):
            piece = data[start : start + 16384]
            self.wfile.write(piece)
            self.server.sent += len(piece)

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Routes from path to behaviours, and a record of what was asked and sent."""

    daemon_threads = True

    def __init__(self, certificate: object | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes: dict[str, list[Behaviour]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent = 0
        self.held = threading.Event()  #: set when the test is over: nobody waits longer
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"

    def url(self, path: str, host: str = "localhost") -> str:
        return f"{self.scheme}://{host}:{self.server_port}{path}"

    def route(self, path: str, *steps: Behaviour) -> str:
        self.routes[path] = list(steps)
        return self.url(path)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextlib.contextmanager
def serving(certificate: object | None = None) -> Iterator[Server]:
    """Run a server in a thread."""
    server = Server(certificate)
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
    """Serve bytes, with every way to do it wrong.

    Attributes
    ----------
    cut
        Hang up after this many bytes of the file.
    ranges
        Understand Range; ``if_range`` also If-Range.
    length
        Declare this length instead of the true one; ``None`` declares none.
    pace
        Seconds between pieces of 16 KiB.
    """

    data: bytes
    etag: str | None = '"one"'
    last_modified: str | None = None
    kind: str = "application/zip"
    cut: int | None = None
    ranges: bool = True
    if_range: bool = True
    length: int | str | None = "true"
    shift: int = 0
    pace: float = 0.0
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
        for at in range(start, stop, 16384):
            handler.body(self.data[at : min(stop, at + 16384)])
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
