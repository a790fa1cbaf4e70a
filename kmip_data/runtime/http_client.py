"""HTTP requests to servers that are not trusted: checked redirects, TLS always on, and no endless wait.

The time-out of a socket starts anew with every byte, so a server that sends one byte a second, or
one interim answer (1xx) after the other, would hold a request for ever. Here one thread of the
process watches all waits: for the handshake and the headers, and for each piece of a body. A wait
that lasts too long ends because the thread shuts the connection down.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import requests
import requests.adapters
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from kmip_data import __version__
from kmip_data.errors import UsageError
from kmip_data.wording import without_controls, without_secrets

MAX_REDIRECTS = 10
# Up to 18 digits: a number of thousands of them cannot even be converted.
_LENGTH = re.compile(r"\d{1,18}")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
PIECE = 2**18  #: bytes taken from the connection at a time, at most
ENVIRONMENT = "KMIP_DATA_STALL_TIMEOUT"
#: statuses that often pass: time-out, too early, too many requests, and trouble of the server
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class MirrorFailed(Exception):
    """A mirror failed; ``reason`` continues after its name: ``answers 404 Not Found``.

    ``again``: worth another try at the same mirror, after as many seconds as the server asked to
    ``wait``; ``stalled``: it took long already, so only if this one brought something.
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool = False,
        stalled: bool = False,
        wait: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = without_controls(without_secrets(reason))
        self.again = again
        self.stalled = stalled
        self.wait = wait


@dataclass(frozen=True)
class Patience:
    """Time limits for a server, in seconds."""

    connect: float = 15.0  #: for a connection to one address, and once more for its TLS handshake
    stall: float = 30.0  #: for all headers of an answer, and for ``stall * rate`` bytes of its body
    rate: float = 1024.0  #: bytes per second below which even a trickle is a stall
    attempts: int = 3  #: tries at one mirror that bring nothing
    pause: float = 1.0  #: before the second try, doubled for each further one
    longest_wait: float = 60.0  #: that a server may ask for

    @classmethod
    def from_environment(cls) -> Self:
        """Return the defaults, with the stall time of ``KMIP_DATA_STALL_TIMEOUT``, if that is set."""
        text = os.environ.get(ENVIRONMENT) or str(cls.stall)
        with contextlib.suppress(ValueError):
            if float(text) > 0:
                return cls(stall=float(text))
        raise UsageError(
            f"{ENVIRONMENT}={text} is not seconds above 0.", next=f"unset {ENVIRONMENT}"
        )


class _Watch:
    """One thread that shuts down connections on which somebody has waited too long.

    A thread and not a time-out, since the loops that wait are those of http.client, urllib3 and
    OpenSSL. It looks ten times a second while anybody waits and ends afterwards.
    """

    PAUSE = 0.1  #: seconds between two looks

    def __init__(self) -> None:
        self.forget()
        # A forked process has the parent's connections, but not its thread.
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Drop all waits and let the next one start a thread."""
        self._lock = threading.Lock()
        self._waits: dict[socket.socket, float] = {}
        self._running = False

    @contextlib.contextmanager
    def limit(self, descriptor: int, seconds: float) -> Iterator[None]:
        """Shut the connection with this descriptor down if the block takes longer.

        Raises ``TimeoutError`` in that case, whatever the block returned or raised.
        """
        # A duplicate reaches the connection also when TLS wraps its socket or http.client closes
        # it.
        with socket.socket(fileno=os.dup(descriptor)) as line:
            with self._lock:
                self._waits[line] = time.monotonic() + seconds
                if not self._running:
                    self._running = True
                    threading.Thread(target=self._run, name="http-watch", daemon=True).start()
            try:
                yield
            finally:
                with self._lock:
                    in_time = self._waits.pop(line, None) is not None
                if not in_time:
                    raise TimeoutError(f"no answer in {seconds:g} s")

    def _run(self) -> None:
        while True:
            time.sleep(self.PAUSE)
            with self._lock:
                if not self._waits:
                    self._running = False
                    return
                now = time.monotonic()
                for line in [line for line, deadline in self._waits.items() if deadline < now]:
                    del self._waits[line]
                    with contextlib.suppress(OSError):  # the other side was faster
                        line.shutdown(socket.SHUT_RDWR)


_WATCH = _Watch()


class _Watched:
    """A connection whose handshake, and whose headers as a whole, come within its time-outs."""

    sock: Any
    timeout: Any

    def connect(self) -> None:
        with contextlib.ExitStack() as self._handshake:
            super().connect()  # type: ignore[misc]

    def _new_conn(self) -> socket.socket:
        sock: socket.socket = super()._new_conn()  # type: ignore[misc]
        self._handshake.enter_context(_WATCH.limit(sock.fileno(), self.timeout))
        return sock

    def getresponse(self) -> Any:
        with _WATCH.limit(self.sock.fileno(), self.timeout):
            return super().getresponse()  # type: ignore[misc]


class _Pool(urllib3.HTTPConnectionPool):
    class ConnectionCls(_Watched, HTTPConnection):
        pass


class _SecurePool(urllib3.HTTPSConnectionPool):
    class ConnectionCls(_Watched, HTTPSConnection):
        pass


class _Adapter(requests.adapters.HTTPAdapter):
    """Connections of requests that are watched, directly or through a proxy."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):  # whose connections are a class of their own
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return manager


class Session(requests.Session):
    """Connections that are reused.

    One thread uses them, since ``requests`` promises nothing to several.
    """

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"kmip-data/{__version__}"
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Disable redirects of ``requests``, which would read the complete answer first."""
        return


@contextlib.contextmanager
def open_response(
    url: str,
    headers: Mapping[str, str],
    patience: Patience,
    session: Session | None = None,
) -> Iterator[requests.Response]:
    """Request ``url`` and return the answer, of any status, after at most ten redirects.

    A ``session`` keeps the connection of an answer that is read to its end.

    Proxies, certificate bundles and ``.netrc`` are taken from the environment as ``requests`` does.
    Raises :class:`MirrorFailed` where there is no answer, or a redirect that is refused.
    """
    with contextlib.nullcontext(session) if session else Session() as connections:
        limits: dict[str, Any] = {
            "timeout": (patience.connect, patience.stall),
            "allow_redirects": False,
        }
        with _follow(
            partial(connections.get, headers=dict(headers), stream=True, **limits), url
        ) as response:
            yield response


def _follow(ask: Callable[[str], requests.Response], url: str) -> requests.Response:
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = ask(url)
        except requests.RequestException as error:
            raise from_exception(error) from error
        except (
            OSError,
            ValueError,
            http.client.HTTPException,
            urllib3.exceptions.HTTPError,
        ) as error:
            raise MirrorFailed(f"failed ({' '.join(str(error).split())[:160]})") from error
        if not response.is_redirect:
            return response
        response.close()
        secure = url.lower().startswith("https:")
        new = ""
        with contextlib.suppress(ValueError):
            url = urllib.parse.urljoin(url, response.headers["Location"])
            new = urllib.parse.urlsplit(url).scheme
        if new not in {"http", "https"}:
            raise MirrorFailed(f"redirects to {new or 'nowhere'}, which is not a web address")
        if secure and new == "http":
            raise MirrorFailed("redirects from https to http, which is refused")
    raise MirrorFailed(f"redirects more than {MAX_REDIRECTS} times")


def body(response: requests.Response, patience: Patience) -> Iterator[bytes]:
    """Yield the bytes of the answer as they come, as they are (no content coding undone).

    In every ``patience.stall`` seconds of waiting for the server ``patience.rate`` bytes a second
    must come; the time that the caller takes between two pieces does not count. Raises
    :class:`MirrorFailed` where the connection was cut, or too little comes.
    """
    reason = f"sent less than {patience.rate / 1000:.0f} kB per second for {patience.stall:g} s"
    received = 0
    waited = 0.0
    while True:
        before = time.monotonic()
        limit: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        with contextlib.suppress(
            AttributeError, OSError, ValueError
        ):  # an answer at its end waits no more
            limit = _WATCH.limit(response.raw.fileno(), patience.stall - waited)
        try:
            with (
                limit
            ):  # a piece may wait itself, for a line of a chunked answer that comes drop by drop
                piece = response.raw.read1(PIECE, decode_content=False)
        except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
            raise MirrorFailed(reason, again=True, stalled=True) from error
        except (
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            OSError,
            ValueError,
        ) as error:
            raise MirrorFailed("cut the connection", again=True) from error
        if not piece:
            return
        received += len(piece)
        waited += time.monotonic() - before
        if received >= patience.rate * patience.stall:
            received = 0
            waited = 0.0
        elif waited > patience.stall:
            raise MirrorFailed(reason, again=True, stalled=True)
        yield piece


def content_range(response: requests.Response) -> tuple[int, int, int | None] | None:
    """Return first and last byte and the size that ``Content-Range`` names.

    Returns ``None`` without a valid one.
    """
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return match and (int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))


def declared_length(response: requests.Response) -> int | None:
    """Return the length that the answer declares; ``None`` if it declares none."""
    text = response.headers.get("Content-Length", "").strip()
    if not text or "chunked" in response.headers.get("Transfer-Encoding", ""):
        return None
    if not _LENGTH.fullmatch(text):
        raise MirrorFailed("declares a length that is not a number of bytes")
    return int(text)


def kind_of(response: requests.Response) -> str:
    """Return a blank and the type that the server gives the file; empty if it gives none."""
    kind = " ".join(response.headers.get("Content-Type", "").split(";")[0].split())
    return f" {kind[:60]}" if kind else ""


def from_status(response: requests.Response, longest_wait: float) -> MirrorFailed:
    """Return the failure that the status of ``response`` means."""
    code = response.status_code
    phrases = {status.value: status.phrase for status in http.HTTPStatus}
    reason = f"answers {code} {phrases.get(code, 'an unknown status')}"
    wait = retry_after(response.headers.get("Retry-After"))
    if wait is not None and wait > longest_wait:
        return MirrorFailed(f"{reason} and asks to wait {wait:.0f} s")
    return MirrorFailed(reason, again=code in PASSING, wait=wait)


def retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3).

    Returns ``None`` without a valid one.
    """
    try:
        return None if value is None else float(urllib3.Retry().parse_retry_after(value))
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


def from_exception(error: requests.RequestException) -> MirrorFailed:
    """Return the failure that an exception of ``requests`` means."""
    text = _innermost(error)
    kinds = requests.exceptions
    if isinstance(error, kinds.SSLError):
        return MirrorFailed(
            f"has no TLS certificate that is trusted here ({text}); TLS is never switched off "
            "(is the clock of this machine right?)"
        )
    if isinstance(error, kinds.ProxyError):
        return MirrorFailed(f"cannot be reached through the proxy ({text})")
    if isinstance(error, kinds.ReadTimeout):
        return MirrorFailed("sent nothing for too long", again=True, stalled=True)
    if "NameResolution" in repr(error) or "getaddrinfo" in text:
        return MirrorFailed("cannot be reached: its host name cannot be resolved")
    if isinstance(error, kinds.ConnectTimeout) or "refused" in text or "unreachable" in text:
        return MirrorFailed(f"cannot be connected to ({text})")
    if isinstance(error, kinds.ConnectionError | kinds.ChunkedEncodingError):
        return MirrorFailed("cut the connection", again=True)
    return MirrorFailed(f"failed ({text})")


def _innermost(error: BaseException) -> str:
    """Return the text of the exception that started it, in one line."""
    while isinstance(
        inner := getattr(error, "reason", None) or (error.args or [None])[0], BaseException
    ):
        error = inner
    return " ".join(str(error).split())[:160]
