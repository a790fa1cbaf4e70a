"""Ask a server for a file: redirects checked one by one, TLS always on, and a watch that ends a stall."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from kmip_data import __version__
from kmip_data.errors import UsageError
from kmip_data.pipelines.download.http_errors import MirrorFailed, from_exception

MAX_REDIRECTS = 10
PIECE = 2**18  #: bytes taken from the connection at a time, at most
ENVIRONMENT = "KMIP_DATA_STALL_TIMEOUT"


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server.

    Attributes
    ----------
    connect
        Seconds for a connection to one address.
    stall
        Seconds in which at least ``rate`` bytes a second must come (so a trickle is a stall too).
    attempts
        Tries at one mirror that bring nothing.
    pause
        Seconds before the second try, doubled for each further one.
    longest_wait
        Seconds a server may ask to wait.
    """

    connect: float = 15.0
    stall: float = 30.0
    rate: float = 1024.0
    attempts: int = 3
    pause: float = 1.0
    longest_wait: float = 60.0

    @classmethod
    def from_environment(cls) -> Self:
        """Return the defaults, with the stall time of ``KMIP_DATA_STALL_TIMEOUT``.

        Raises
        ------
        UsageError
            That is not a number above 0.
        """
        text = os.environ.get(ENVIRONMENT)
        if not text:
            return cls()
        with contextlib.suppress(ValueError):
            if float(text) > 0:
                return cls(stall=float(text))
        raise UsageError(
            f"{ENVIRONMENT} is not a time.",
            expected="seconds, above 0",
            found=text,
            left="nothing was downloaded",
            next=f"unset {ENVIRONMENT}",
        )


class Watch:
    """Shut a connection down when too little comes through, in whatever phase it is.

    A time-out of the socket starts anew with every byte, so a server that sends one byte a second,
    in the body or in a header, would hold it for ever.
    """

    def __init__(self, patience: Patience) -> None:
        self.stalled = False
        self._patience = patience
        self._sockets: list[socket.socket] = []
        self._count = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kmip-data-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._shut()
        for connection in self._sockets:
            connection.close()

    def adopt(self, connection: socket.socket) -> None:
        """Watch a new connection. The duplicate stays valid when TLS wraps the original."""
        self._sockets.append(connection.dup())

    def count(self, received: int) -> None:
        """Note that bytes came."""
        self._count += received

    def _run(self) -> None:
        needed = self._patience.rate * self._patience.stall
        start, connections, count = time.monotonic(), 0, 0
        while not self._ended.wait(min(1.0, self._patience.stall / 8)):
            now = time.monotonic()
            if self._count - count >= needed or len(self._sockets) > connections:
                start, connections, count = now, len(self._sockets), self._count
            elif connections and now - start > self._patience.stall:
                self.stalled = True
                self._shut()

    def _shut(self) -> None:
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _WatchedAdapter(HTTPAdapter):
    """The adapter of ``requests``, with connections that report to a watch."""

    def __init__(self, watch: Watch) -> None:
        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                connection = super()._new_conn()
                watch.adopt(connection)
                return connection

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                connection = super()._new_conn()
                watch.adopt(connection)
                return connection

        plain = type("WatchedPool", (HTTPConnectionPool,), {"ConnectionCls": Plain})
        secure = type("WatchedSecurePool", (HTTPSConnectionPool,), {"ConnectionCls": Secure})
        self._pools = {"http": plain, "https": secure}
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = self._pools
        return manager


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """Leave redirects to us: asked for the target, ``requests`` reads the whole answer first."""
        return


@contextlib.contextmanager
def open_response(
    url: str, headers: Mapping[str, str], watch: Watch, patience: Patience
) -> Iterator[requests.Response]:
    """Ask for ``url`` and give the answer, of whatever status, after at most ten redirects.

    Proxies, certificate bundles and ``.netrc`` are taken from the environment as ``requests`` does.

    Raises
    ------
    MirrorFailed
        There is no answer, or a redirect that is refused.
    """
    with _Session() as session:
        adapter = _WatchedAdapter(watch)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        session.headers["User-Agent"] = f"kmip-data/{__version__}"
        response = _follow(session, url, headers, watch, patience)
        with response:
            yield response


def _follow(
    session: requests.Session, url: str, headers: Mapping[str, str], watch: Watch, patience: Patience
) -> requests.Response:
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = session.get(
                url,
                headers=dict(headers),
                stream=True,
                allow_redirects=False,
                timeout=(patience.connect, patience.stall),
            )
        except requests.RequestException as error:
            raise stalled(patience) if watch.stalled else from_exception(error) from error
        except (OSError, ValueError, http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
            raise MirrorFailed(f"failed ({' '.join(str(error).split())[:160]})") from error
        if not response.is_redirect:
            return response
        response.close()
        try:
            target = urllib.parse.urljoin(url, response.headers["Location"])
            old, new = urllib.parse.urlsplit(url).scheme, urllib.parse.urlsplit(target).scheme
        except ValueError as error:
            raise MirrorFailed("redirects to what is no web address") from error
        if new not in {"http", "https"}:
            raise MirrorFailed(f"redirects to {new or 'nowhere'}, which is not a web address")
        if old == "https" and new == "http":
            raise MirrorFailed("redirects from https to http, which is refused")
        url = target
    raise MirrorFailed(f"redirects more than {MAX_REDIRECTS} times")


def body(response: requests.Response, watch: Watch, patience: Patience) -> Iterator[bytes]:
    """Yield the bytes of the answer as they come, as they are (no content coding undone).

    Raises
    ------
    MirrorFailed
        The connection was cut, or nothing comes any more.
    """
    while True:
        try:
            piece = response.raw.read1(PIECE, decode_content=False)
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            if watch.stalled or isinstance(error, urllib3.exceptions.ReadTimeoutError):
                raise stalled(patience) from error
            raise MirrorFailed("cut the connection", again=True) from error
        if watch.stalled:
            raise stalled(patience)
        if not piece:
            return
        watch.count(len(piece))
        yield piece


def stalled(patience: Patience) -> MirrorFailed:
    """Return the failure of a server from which too little comes."""
    reason = f"sent less than {patience.rate / 1000:.0f} kB a second for {patience.stall:g} s"
    return MirrorFailed(reason, again=True, stalled=True)
