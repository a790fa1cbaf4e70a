"""HTTP requests with mandatory TLS verification, checked redirects and a minimum transfer rate."""

from __future__ import annotations

import contextlib
import http.client
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping

import requests
import urllib3

from kmip_data import __version__
from kmip_data.text import one_line, strip_secrets

MAX_REDIRECTS = 10
CONNECT_SECONDS = 15.0  #: timeout of a connection to one address
STALL_SECONDS = 60.0  #: longest time without a byte, or below ``MIN_BYTES_PER_SECOND``
MIN_BYTES_PER_SECOND = 1024.0  #: bytes per second
RETRY_DELAY_SECONDS = 1.0  #: delay before the first retry, doubled for each further one
MAX_RETRY_AFTER = 60.0  #: longest delay in seconds, requested by a server, that is obeyed
CHUNK_BYTES = 2**18  #: largest read from a connection
#: transient statuses: timeout, too early, too many requests, and server errors
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class RequestFailed(Exception):
    """Failure of a request; ``reason`` completes a sentence that starts with the server's name.

    With ``retry``, another attempt may succeed, after ``wait`` seconds if the server asked for them;
    with ``stalled``, only if this attempt received data.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry: bool = False,
        stalled: bool = False,
        wait: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = one_line(strip_secrets(reason))
        self.retry = retry
        self.stalled = stalled
        self.wait = wait


class Session(requests.Session):
    """Pool of connections for one thread; sessions of ``requests`` are not thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"kmip-data/{__version__}"
        # No compression in transit: the bytes received are counted and hashed.
        self.headers["Accept-Encoding"] = "identity"
        self.max_redirects = MAX_REDIRECTS

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the target of a redirect; refuse one from https to http.

        ``requests`` itself refuses schemes other than these.
        """
        target = super().get_redirect_target(resp)
        if target is None:
            return None
        scheme = urllib.parse.urlsplit(urllib.parse.urljoin(resp.url, target)).scheme
        if scheme == "http" and resp.url.startswith("https:"):
            raise RequestFailed("redirects from https to http, which is refused")
        resp.close()  # otherwise requests reads the redirect's body, which may be endless
        return target


@contextlib.contextmanager
def open_response(
    url: str,
    headers: Mapping[str, str | None],
    session: Session | None = None,
) -> Iterator[requests.Response]:
    """Request ``url`` and yield the response, of any status, after at most ten redirects.

    With a ``session``, the connection of a response that is read to its end is reused. Proxies,
    certificate bundles and ``.netrc`` are taken from the environment, as ``requests`` does. Raises
    :class:`RequestFailed` if there is no response, or if a redirect is refused.
    """
    with contextlib.nullcontext(session) if session else Session() as connections:
        try:
            response = connections.get(
                url,
                headers=dict(headers),
                stream=True,
                timeout=(CONNECT_SECONDS, STALL_SECONDS),
            )
        except _REQUEST_ERRORS as error:
            raise failure_of_exception(error) from error
        with response:
            yield response


#: Errors of a request, including errors of other libraries that ``requests`` lets through.
_NETWORK_ERRORS = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)
_REQUEST_ERRORS = (*_NETWORK_ERRORS, ValueError)


def response_body(response: requests.Response) -> Iterator[bytes]:
    """Yield the bytes of the response as they arrive, without decoding.

    The server must send ``MIN_BYTES_PER_SECOND`` bytes a second in every ``STALL_SECONDS`` of waiting; time spent
    by the caller between two chunks does not count. Raises :class:`RequestFailed` if the connection is
    cut or too slow.
    """
    received = 0
    waited = 0.0
    while True:
        start = time.monotonic()
        try:
            chunk = response.raw.read1(CHUNK_BYTES, decode_content=False)
        except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
            raise _stalled_error() from error
        except _REQUEST_ERRORS as error:
            raise RequestFailed("cut the connection", retry=True) from error
        if not chunk:
            return
        received += len(chunk)
        waited += time.monotonic() - start
        if received >= MIN_BYTES_PER_SECOND * STALL_SECONDS:
            received = 0
            waited = 0.0
        elif waited > STALL_SECONDS:
            raise _stalled_error()
        yield chunk


def _stalled_error() -> RequestFailed:
    reason = (
        f"sent less than {MIN_BYTES_PER_SECOND / 1000:.0f} kB per second for {STALL_SECONDS:g} s"
    )
    return RequestFailed(reason, retry=True, stalled=True)


def parse_content_range(response: requests.Response) -> tuple[int, int, int | None] | None:
    """Return first byte, last byte and size of a ``Content-Range`` header; ``None`` if invalid."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return match and (int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))


def failure_of_status(response: requests.Response) -> RequestFailed:
    """Return the failure for the status of a response."""
    code = response.status_code
    reason = f"answers {code} {response.reason[:60]}"
    wait = parse_retry_after(response.headers.get("Retry-After"))
    if wait:
        reason += f" and asks to wait {wait:.0f} s"
    retry = code in TRANSIENT_STATUSES and (wait or 0) <= MAX_RETRY_AFTER
    return RequestFailed(reason, retry=retry, wait=wait)


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header (RFC 9110, 10.2.3); ``None`` if invalid."""
    try:
        return None if value is None else float(urllib3.Retry().parse_retry_after(value))
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


def failure_of_exception(error: Exception) -> RequestFailed:
    """Return the failure for an exception of ``requests``.

    It contains only the root cause, because messages of ``requests`` quote addresses.
    """
    root: BaseException = error
    while isinstance(root.__context__, _NETWORK_ERRORS):
        root = root.__context__
    reason = f"gave no answer ({getattr(root, 'strerror', None) or type(root).__name__})"
    if isinstance(error, requests.exceptions.SSLError):
        reason += "; TLS is never switched off (is the clock of this machine right?)"
    # Retry only if there was a connection.
    was_cut = isinstance(root, ConnectionResetError | http.client.HTTPException)
    stalled = isinstance(error, requests.ReadTimeout)
    return RequestFailed(reason, retry=was_cut or stalled, stalled=stalled)
