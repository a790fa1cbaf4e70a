"""Ask a server for a file: redirects checked one by one, TLS always on, and a stalled body ended."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import requests
import urllib3

from kmip_data import __version__
from kmip_data.errors import UsageError
from kmip_data.runtime.http_errors import MirrorFailed, from_exception

MAX_REDIRECTS = 10
# Up to 18 digits: a number of thousands of them cannot even be converted.
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
PIECE = 2**18  #: bytes taken from the connection at a time, at most
ENVIRONMENT = "KMIP_DATA_STALL_TIMEOUT"


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server; times are in seconds."""

    connect: float = 15.0  #: for a connection to one address
    stall: float = 30.0  #: in which ``rate`` must come, and the longest silence while the headers come
    rate: float = 1024.0  #: bytes per second below which even a trickle is a stall
    attempts: int = 3  #: tries at one mirror that bring nothing
    pause: float = 1.0  #: before the second try, doubled for each further one
    longest_wait: float = 60.0  #: that a server may ask for

    @classmethod
    def from_environment(cls) -> Self:
        """Return the defaults, with the stall time of ``KMIP_DATA_STALL_TIMEOUT``, if that is set."""
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


class Session(requests.Session):
    """Connections that are used again; of one thread, since ``requests`` promises nothing to several."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["User-Agent"] = f"kmip-data/{__version__}"

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Leave redirects to us: asked for the target, ``requests`` reads the whole answer first."""
        return


@contextlib.contextmanager
def open_response(
    url: str, headers: Mapping[str, str], patience: Patience, session: Session | None = None
) -> Iterator[requests.Response]:
    """Ask for ``url`` and give the answer, of whatever status, after at most ten redirects.

    A ``session`` keeps the connection of an answer that is read to its end.

    Proxies, certificate bundles and ``.netrc`` are taken from the environment as ``requests`` does. Raises
    :class:`MirrorFailed` where there is no answer, or a redirect that is refused.
    """
    with (
        contextlib.nullcontext(session) if session else Session() as connections,
        _follow(connections, url, headers, patience) as response,
    ):
        yield response


def _follow(
    session: requests.Session, url: str, headers: Mapping[str, str], patience: Patience
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
            raise from_exception(error) from error
        except (OSError, ValueError, http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
            raise MirrorFailed(f"failed ({' '.join(str(error).split())[:160]})") from error
        if not response.is_redirect:
            return response
        response.close()
        try:
            target = urllib.parse.urljoin(url, response.headers["Location"])
            old, new = urllib.parse.urlsplit(url).scheme, urllib.parse.urlsplit(target).scheme
        except ValueError as error:
            raise MirrorFailed("redirects to something that is not a web address") from error
        if new not in {"http", "https"}:
            raise MirrorFailed(f"redirects to {new or 'nowhere'}, which is not a web address")
        if old == "https" and new == "http":
            raise MirrorFailed("redirects from https to http, which is refused")
        url = target
    raise MirrorFailed(f"redirects more than {MAX_REDIRECTS} times")


def body(response: requests.Response, patience: Patience) -> Iterator[bytes]:
    """Yield the bytes of the answer as they come, as they are (no content coding undone).

    A time-out of the socket starts anew with every byte, so the rate is looked at here: over the time spent
    waiting for the server, not for whoever takes the bytes. Raises :class:`MirrorFailed` where the connection
    was cut, or too little comes.
    """
    received, waited = 0, 0.0
    while True:
        before = time.monotonic()
        try:
            piece = response.raw.read1(PIECE, decode_content=False)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise _stalled(patience) from error
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise MirrorFailed("cut the connection", again=True) from error
        if not piece:
            return
        received += len(piece)
        waited += time.monotonic() - before
        if received >= patience.rate * patience.stall:
            received, waited = 0, 0.0
        elif waited > patience.stall:
            raise _stalled(patience)
        yield piece


def content_range(response: requests.Response) -> tuple[int, int, int | None] | None:
    """Return first and last byte and the size that ``Content-Range`` names; ``None`` without a valid one."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return match and (int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))


def _stalled(patience: Patience) -> MirrorFailed:
    reason = f"sent less than {patience.rate / 1000:.0f} kB per second for {patience.stall:g} s"
    return MirrorFailed(reason, again=True, stalled=True)
