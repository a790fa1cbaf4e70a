"""A web server of one folder that answers ranges.

It counts what it sends, and can be slow, hang up, give other bytes, or give whole files only.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PIECE = 2**16


class Handler(BaseHTTPRequestHandler):
    """Answers ``GET`` with ``Range``."""

    server: RangeServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two packets

    def do_GET(self) -> None:
        path = (self.server.folder / urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")).resolve()
        if not path.is_file() or not path.is_relative_to(self.server.folder):
            self.send_error(404)
            return
        if self.server.resets > 0:
            self.server.resets -= 1
            self.close_connection = True
            return
        size, name = path.stat().st_size, path.relative_to(self.server.folder).as_posix()
        given = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if given is None or not self.server.ranges:
            start, stop, code = 0, size, 200
        else:
            start, stop, code = int(given[1]), min(size, int(given[2] or size) + 1), 206
        if code == 206 and start >= size:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(code)
        self.send_header("Content-Length", str(stop - start + self.server.more))
        if code == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        self._send(path, name, start, stop)

    def _send(self, path: Path, name: str, start: int, stop: int) -> None:
        server = self.server
        with server.lock:
            server.asked.append((name, start, stop))
        time.sleep(server.latency)
        with path.open("rb") as file, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            file.seek(start)
            for at in range(start, stop, PIECE):
                piece = bytearray(file.read(min(PIECE, stop - at)))
                if name == server.wrong_file and at <= server.wrong_byte < at + len(piece):
                    piece[server.wrong_byte - at] ^= 1
                server.wait_for(len(piece))
                self.wfile.write(piece)
            for _ in range(-(-server.more // PIECE)):
                self.wfile.write(bytes(PIECE))

    def log_message(self, *args: object) -> None:
        pass


class RangeServer(ThreadingHTTPServer):
    """Serves ``folder``.

    Attributes
    ----------
    asked
        File, first byte and end of each answer.
    rate
        Bytes per second of all answers together; 0: as fast as it goes.
    latency
        Seconds before each answer.
    resets
        Requests that are hung up on from now on.
    wrong_file, wrong_byte
        A byte that is sent with another last bit.
    ranges
        Whether ``Range`` is understood.
    more
        Bytes that are sent beyond what was asked for.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, port: int = 0, *, rate: float = 0.0, latency: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder, self.rate, self.latency = folder.resolve(), rate, latency
        self.asked: list[tuple[str, int, int]] = []
        self.resets, self.wrong_file, self.wrong_byte, self.ranges, self.more = 0, "", 0, True, 0
        self.lock, self._free_at = threading.Lock(), 0.0

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_port}"

    @property
    def sent(self) -> int:
        """Bytes of files, over all answers."""
        return sum(stop - start for _, start, stop in self.asked)

    def wait_for(self, size: int) -> None:
        """Sleep until the link, which all answers share, has carried these bytes."""
        if self.rate:
            with self.lock:
                # A busy machine wakes threads late: what they missed of the last moment is not lost.
                self._free_at = max(self._free_at, time.monotonic() - 0.05) + size / self.rate
                free_at = self._free_at
            time.sleep(max(0.0, free_at - time.monotonic()))

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, **options: float) -> Iterator[RangeServer]:
    """Run a server in a thread."""
    server = RangeServer(folder, **options)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
