"""Requests to servers that stall: the wait ends, also where a drop of the body comes now and then."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import RequestFailed, open_response, response_body

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

#: what is sent at once, and then again and again: a piece, each so many seconds
ENDLESS = {
    "nothing": (b"", b"", 1),
    "half a status line": (b"HTTP/1.1 200 ", b"", 1),
    "a body drop by drop": (OK + b"Content-Length: 1000000\r\n\r\n", b"x", 0.05),
    "chunks of one byte": (CHUNKED, b"1\r\nx\r\n", 0.05),
}


@contextlib.contextmanager
def endless(first: bytes, again: bytes, every: float) -> Iterator[str]:
    """Serve such an answer to each connection; gives host and port."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(60)
            connection.recv(4096)
            connection.sendall(first)
            while not ended.wait(every):
                connection.sendall(again)

    def accept() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def request(url: str) -> None:
    with open_response(url, {}) as response:
        for _ in response_body(response):
            pass


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {
        "CONNECT_SECONDS": 0.5,
        "STALL_SECONDS": 0.5,
        "MIN_BYTES_PER_SECOND": 2000,
    }.items():
        monkeypatch.setattr(http_client, name, value)


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS)
def test_a_stalled_answer_is_cut(answer):
    with ThreadPoolExecutor(1) as pool, endless(*answer) as host:
        request_of_it = pool.submit(request, f"http://{host}/a")
        with pytest.raises(RequestFailed) as caught:
            request_of_it.result(60)
    assert caught.value.stalled


def test_a_slow_reader_is_not_a_slow_server(monkeypatch):
    """More than the buffers of a connection hold: the server waits for the reader, and not the other way."""
    size = 20 * 2**20
    whole = OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    monkeypatch.setattr(http_client, "STALL_SECONDS", 1.5)
    with (
        endless(whole, b"", 1) as host,
        open_response(f"http://{host}/a", {}) as response,
    ):
        pieces = response_body(response)
        received = len(next(pieces))
        time.sleep(3)
        assert received + sum(map(len, pieces)) == size


def test_a_server_just_above_the_rate_is_read_to_the_end(monkeypatch):
    monkeypatch.setattr(
        http_client, "MIN_BYTES_PER_SECOND", 40
    )  # 200 is sent, by a busy machine less
    head = OK + b"Content-Length: 300\r\n\r\n"
    with (
        endless(head, b"x" * 10, 0.05) as host,
        open_response(f"http://{host}/a", {}) as response,
    ):
        assert sum(map(len, response_body(response))) == 300
