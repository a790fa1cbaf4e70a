"""Web servers on this machine that play good, odd, slow and hostile hosts."""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Behaviour = Callable[["Handler"], None]
PIECE = 16_384
#: Errors that a client that gives up causes in a server.
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

    def body(self, data: bytes, *, chunked: bool = False) -> None:
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            self.server.sent += len(piece)

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Play the behaviours of a path in turn, the last one from then on; record requests and bytes."""

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
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

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
    """Serves a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder.resolve()
        self.address = self.url("")

    def answer(self, handler: Handler) -> None:
        self.requests.append((handler.path, dict(handler.headers)))
        path = self.folder / urllib.parse.unquote(handler.path.partition("?")[0]).lstrip("/")
        (File(path.read_bytes()) if path.is_file() else status(404))(handler)


def serving(certificate: Any = None) -> contextlib.AbstractContextManager[Any]:
    """Run a :class:`Server`."""
    return running(Server(certificate))


def serving_folder(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Run a :class:`FolderServer`."""
    return running(FolderServer(folder))


@contextlib.contextmanager
def running(server: Any) -> Iterator[Any]:
    """Run a server in a thread."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
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
    stalls: bool = False  #: be silent there instead
    last: int | None = None  #: end of the range that is sent at most
    total: str | None = None  #: size in Content-Range instead of the true one
    ranges: bool = True  #: understand Range
    if_range: bool = True  #: understand If-Range
    #: declare this length instead of the true one; ``None``: none
    length: int | str | None = "true"
    chunked: bool = False  #: send without a length, in chunks
    shift: int = 0
    more: int = 0  #: zeros after the end
    piece: int = PIECE  #: bytes
    pace: float = 0.0  #: seconds between pieces
    extra: dict[str, str] = field(default_factory=dict)

    def __call__(self, handler: Handler) -> None:
        start, end, code = self.span(handler)
        if code == 206 and start >= end:
            handler.head(416, 0)
            return
        stop = end if self.cut is None else max(start, self.cut)
        headers = {"Content_Type": self.kind, **self.extra}
        headers |= {"ETag": self.etag} if self.etag else {}
        headers |= {"Last_Modified": self.last_modified} if self.last_modified else {}
        if code == 206:
            total = self.total or len(self.data)
            headers["Content_Range"] = f"bytes {start + self.shift}-{end - 1}/{total}"
        length = end - start + self.more if self.length == "true" else self.length
        if self.chunked:
            headers["Transfer_Encoding"], length = "chunked", None
        elif length is None:
            headers["Connection"] = "close"
        handler.head(code, length, **headers)
        for at in range(start, stop, self.piece):
            handler.body(self.data[at : min(stop, at + self.piece)], chunked=self.chunked)
            if self.pace and handler.server.held.wait(self.pace):
                return
        handler.body(bytes(self.more))
        if self.stalls:
            handler.server.held.wait(30)
        if self.chunked and stop == end:
            handler.wfile.write(b"0\r\n\r\n")
        if stop < end or length != end - start + self.more:
            handler.hang_up()

    def span(self, handler: Handler) -> tuple[int, int, int]:
        """First byte and end of what is asked for, and the status of the answer."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
        condition, size = handler.headers.get("If-Range"), len(self.data)
        if wanted is None or not self.ranges:
            return 0, size, 200
        if condition and self.if_range and condition not in {self.etag, self.last_modified}:
            return 0, size, 200
        return int(wanted[1]), min(size, self.last or size, int(wanted[2] or size) + 1), 206


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


def stall(data: bytes, after: int) -> Behaviour:
    """Send ``after`` bytes and then nothing."""
    return File(data, cut=after, stalls=True)


def drip(data: bytes) -> Behaviour:
    """Send the body one byte at a time."""
    return File(data, piece=1, pace=0.05)


def chunked(data: bytes) -> Behaviour:
    """Send without a length, in chunks."""
    return File(data, chunked=True)
