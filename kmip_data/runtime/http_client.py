"""HTTP requests by ``requests``: TLS always on, redirects checked, stalled servers left."""

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
from kmip_data.text import replace_controls, strip_secrets

MAX_REDIRECTS = 10
CONNECT = 15.0  #: seconds for a connection to one address
STALL = 60.0  #: seconds without a byte, or with less than ``RATE``
RATE = 1024.0  #: bytes per second
PAUSE = 1.0  #: seconds before the second try, doubled for each further one
LONGEST_WAIT = 60.0  #: seconds that a server may ask for
PIECE = 2**18  #: bytes taken from the connection at a time, at most
#: statuses that often pass: time-out, too early, too many requests, and trouble of the server
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class MirrorFailed(Exception):
    """A mirror failed; ``reason`` continues after its name: ``answers 404 Not Found``.

    ``retry``: the same mirror is worth another try, after the seconds that the server asked to
    ``wait``; ``stalled``: only if this try brought data.
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
        self.reason = replace_controls(strip_secrets(reason))
        self.retry = retry
        self.stalled = stalled
        self.wait = wait


class Session(requests.Session):
    """Connections reused by one thread: ``requests`` does not promise to be safe with several."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"kmip-data/{__version__}"
        # Compressed in transit, the bytes would not be those that are counted and hashed.
        self.headers["Accept-Encoding"] = "identity"
        self.max_redirects = MAX_REDIRECTS

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return where an answer redirects to; refuse an address that is not as safe.

        Other schemes than the web's have no adapter in ``requests``.
        """
        target = super().get_redirect_target(resp)
        if target is None:
            return None
        scheme = urllib.parse.urlsplit(urllib.parse.urljoin(resp.url, target)).scheme
        if scheme == "http" and resp.url.startswith("https:"):
            raise MirrorFailed("redirects from https to http, which is refused")
        resp.close()  # else requests reads the body of the redirect, which may have no end
        return target


@contextlib.contextmanager
def open_response(
    url: str,
    headers: Mapping[str, str | None],
    session: Session | None = None,
) -> Iterator[requests.Response]:
    """Request ``url`` and return the answer, of any status, after at most ten redirects.

    A ``session`` keeps the connection of an answer that is read to its end.

    Proxies, certificate bundles and ``.netrc`` are taken from the environment as ``requests`` does.
    Raises :class:`MirrorFailed` where there is no answer, or a redirect that is refused.
    """
    with contextlib.nullcontext(session) if session else Session() as connections:
        try:
            response = connections.get(
                url,
                headers=dict(headers),
                stream=True,
                timeout=(CONNECT, STALL),
            )
        except _FAILURES as error:
            raise failure_of_exception(error) from error
        with response:
            yield response


#: Errors of a request: requests lets some of other libraries through.
_NETWORK = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)
_FAILURES = (*_NETWORK, ValueError)


def response_body(response: requests.Response) -> Iterator[bytes]:
    """Yield the bytes of the answer as they arrive; no content coding is undone.

    In every ``STALL`` seconds of waiting for the server ``RATE`` bytes a second must come; the time
    that the caller takes between two pieces does not count. Raises :class:`MirrorFailed` where the
    connection was cut, or too little comes.
    """
    received = 0
    waited = 0.0
    while True:
        before = time.monotonic()
        try:
            piece = response.raw.read1(PIECE, decode_content=False)
        except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
            raise _stalled_error() from error
        except _FAILURES as error:
            raise MirrorFailed("cut the connection", retry=True) from error
        if not piece:
            return
        received += len(piece)
        waited += time.monotonic() - before
        if received >= RATE * STALL:
            received = 0
            waited = 0.0
        elif waited > STALL:
            raise _stalled_error()
        yield piece


def _stalled_error() -> MirrorFailed:
    reason = f"sent less than {RATE / 1000:.0f} kB per second for {STALL:g} s"
    return MirrorFailed(reason, retry=True, stalled=True)


def parse_content_range(response: requests.Response) -> tuple[int, int, int | None] | None:
    """Return first and last byte and the size that ``Content-Range`` names; ``None`` without a valid one."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return match and (int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))


def failure_of_status(response: requests.Response) -> MirrorFailed:
    """Return the failure that the status of ``response`` means."""
    code = response.status_code
    reason = f"answers {code} {response.reason[:60]}"
    wait = parse_retry_after(response.headers.get("Retry-After"))
    if wait:
        reason += f" and asks to wait {wait:.0f} s"
    retry = code in PASSING and (wait or 0) <= LONGEST_WAIT
    return MirrorFailed(reason, retry=retry, wait=wait)


def parse_retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3); ``None`` without a valid one."""
    try:
        return None if value is None else float(urllib3.Retry().parse_retry_after(value))
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


def failure_of_exception(error: Exception) -> MirrorFailed:
    """Return the failure that an exception of ``requests`` means.

    It names the root cause alone: messages of ``requests`` quote addresses.
    """
    root: BaseException = error
    while isinstance(root.__context__, _NETWORK):
        root = root.__context__
    reason = f"gave no answer ({getattr(root, 'strerror', None) or type(root).__name__})"
    if isinstance(error, requests.exceptions.SSLError):
        reason += "; TLS is never switched off (is the clock of this machine right?)"
    # Another try may help where there was a connection.
    cut = isinstance(root, ConnectionResetError | http.client.HTTPException)
    stalled = isinstance(error, requests.ReadTimeout)
    return MirrorFailed(reason, retry=cut or stalled, stalled=stalled)
