"""Requests to servers that never end: each wait is cut, whatever trickles in meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kmip_data.runtime.http_client import MirrorFailed, Patience, Session, body, open_response

QUICK = Patience(connect=0.5, stall=0.5, rate=2000, attempts=1)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"

#: what is sent at once, and then again and again: a piece, each so many seconds
ENDLESS = {
    "nothing": (b"", b"", 1),
    "a status line drop by drop": (b"HTTP/1.1 200 ", b"O", 0.05),
    "interim answers": (b"", INTERIM, 0.05),
    "headers of an interim answer drop by drop": (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n", 0.05),
    "headers one by one": (OK, b"X: y\r\n", 0.05),
    "a body drop by drop": (OK + b"Content-Length: 1000000\r\n\r\n", b"x", 0.05),
    "a chunk size drop by drop": (CHUNKED, b"0", 0.05),
    "chunks of one byte": (CHUNKED, b"1\r\nx\r\n", 0.05),
    "trailers one by one": (CHUNKED + b"0\r\n", b"X: y\r\n", 0.05),
}


@contextlib.contextmanager
def endless(first: bytes, again: bytes, every: float) -> Iterator[str]:
    """Serve such an answer to each connection; gives host and port."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(60)
            if not first.startswith(b"\x16"):
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


def outcome(act: Callable[[], object], within: float) -> str | None:
    """Return None for a call that ends with :class:`MirrorFailed` in time, else what it did."""
    found: list[str | None] = ["did not end"]

    def run() -> None:
        try:
            act()
            found[0] = "ended without an error"
        except MirrorFailed as error:
            found[0] = None if error.stalled else f"did not call it a stall: {error.reason}"
        except Exception as error:
            found[0] = f"raised {error!r}"

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within)
    return found[0]


def request(url: str, session: Session | None = None) -> None:
    with open_response(url, {}, QUICK, session) as response:
        for _ in body(response, QUICK):
            pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def how_it_fails(answer: tuple[bytes, bytes, float], scheme: str = "http") -> str | None:
    with endless(*answer) as host, Session() as connections:
        return outcome(lambda: request(f"{scheme}://{host}/a", connections), 60)


def test_every_endless_answer_is_cut(monkeypatch):
    cases = {name: (answer, "http") for name, answer in ENDLESS.items()}
    cases["a TLS handshake drop by drop"] = ((b"\x16\x03\x03\x40\x00\x02", b"\0", 0.05), "https")
    with ThreadPoolExecutor(len(cases)) as pool:
        found = dict(
            zip(cases, pool.map(lambda case: how_it_fails(*case), cases.values()), strict=True)
        )
    with endless(*ENDLESS["a status line drop by drop"]) as host:
        monkeypatch.setenv("https_proxy", f"http://{host}")
        found["the answer of a proxy"] = outcome(lambda: request("https://example.invalid/a"), 60)
    wrong = {case: why for case, why in found.items() if why}
    assert not wrong, f"{len(wrong)} of {len(found)}: {wrong}"


def test_a_slow_reader_is_not_a_slow_server():
    """More than the buffers of a connection hold: the server waits for the reader, and not the other way."""
    size = 20 * 2**20
    whole = OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
    patience = dataclasses.replace(QUICK, stall=1.5)
    with (
        endless(whole, b"", 1) as host,
        open_response(f"http://{host}/a", {}, patience) as response,
    ):
        pieces = body(response, patience)
        received = len(next(pieces))
        time.sleep(2 * patience.stall)
        assert received + sum(map(len, pieces)) == size


def test_a_server_just_above_the_rate_is_read_to_the_end():
    patience = dataclasses.replace(QUICK, rate=40)  # 200 is sent, by a busy machine less
    head = OK + b"Content-Length: 300\r\n\r\n"
    with (
        endless(head, b"x" * 10, 0.05) as host,
        open_response(f"http://{host}/a", {}, patience) as response,
    ):
        assert sum(map(len, body(response, patience))) == 300


def test_the_watch_ends_and_starts_again_also_in_a_forked_process():
    for _ in range(2):
        with endless(*ENDLESS["nothing"]) as host:
            assert outcome(lambda: request(f"http://{host}/a"), 60) is None
        while "http-watch" in {thread.name for thread in threading.enumerate()}:
            time.sleep(0.01)  # the test's own limit is that of pytest
    with endless(*ENDLESS["interim answers"]) as host:
        child = os.fork()
        if not child:
            os._exit(7 if outcome(lambda: request(f"http://{host}/a"), 60) is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
