"""Failures of mirrors: the reason in a few words, and if another try may help."""

from __future__ import annotations

import email.utils
import http
import time
from typing import TYPE_CHECKING

from kmip_data.wording import without_controls, without_secrets

if TYPE_CHECKING:
    from requests import Response
    from requests.exceptions import RequestException

#: statuses that often pass: time-out, too early, too many requests, and trouble of the server
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class MirrorFailed(Exception):
    """A mirror did not deliver; ``reason`` goes on after its name: ``answers 404 Not Found``.

    ``again``: worth another try at the same mirror, after as many seconds as the server asked to ``wait``;
    ``stalled``: it took long already, so only if this one brought something.
    """

    def __init__(
        self, reason: str, *, again: bool = False, stalled: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = without_controls(without_secrets(reason))
        self.again, self.stalled, self.wait = again, stalled, wait


def from_status(response: Response, longest_wait: float) -> MirrorFailed:
    """Return the failure that the status of ``response`` means."""
    code = response.status_code
    try:
        phrase = http.HTTPStatus(code).phrase
    except ValueError:
        phrase = "an unknown status"
    reason = f"answers {code} {phrase}"
    wait = retry_after(response.headers.get("Retry-After"))
    if wait is not None and wait > longest_wait:
        return MirrorFailed(f"{reason} and asks to wait {wait:.0f} s")
    return MirrorFailed(reason, again=code in PASSING, wait=wait)


def retry_after(value: str | None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3); ``None`` without a valid one."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, ArithmeticError, LookupError):  # a year or zone that there is not
        return None


def from_exception(error: RequestException) -> MirrorFailed:
    """Return the failure that an exception of ``requests`` means."""
    from requests import exceptions

    text = _innermost(error)
    if isinstance(error, exceptions.SSLError):
        return MirrorFailed(
            f"has no TLS certificate that is trusted here ({text}); TLS is never switched off "
            "(is the clock of this machine right?)"
        )
    if isinstance(error, exceptions.ProxyError):
        return MirrorFailed(f"cannot be reached through the proxy ({text})")
    if isinstance(error, exceptions.ConnectTimeout):
        return MirrorFailed("cannot be connected to in time")
    if isinstance(error, exceptions.ReadTimeout):
        return MirrorFailed("sent nothing for too long", again=True, stalled=True)
    if "NameResolution" in repr(error) or "getaddrinfo" in text:
        return MirrorFailed("has a host name that cannot be resolved here")
    if isinstance(error, exceptions.ConnectionError | exceptions.ChunkedEncodingError):
        refused = "refused" in text or "unreachable" in text
        return MirrorFailed(
            f"cannot be connected to ({text})" if refused else "cut the connection", again=not refused
        )
    return MirrorFailed(f"failed ({text})")


def _innermost(error: BaseException) -> str:
    """Return the text of the exception that started it, in one line."""
    while isinstance(inner := getattr(error, "reason", None) or (error.args or [None])[0], BaseException):
        error = inner
    return " ".join(str(error).split())[:160]
