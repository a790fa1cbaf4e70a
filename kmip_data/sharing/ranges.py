"""Ranges of bytes of the files at an address: ``http`` and ``https`` here, every other scheme by fsspec.

fsspec reads a web server's answer to its end before anyone can see that it is the whole file, or that it
never ends; here the status and the length are looked at first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Final

import requests

from kmip_data.errors import SourceUnavailable, UsageError
from kmip_data.files.small import open_regular
from kmip_data.runtime.http_client import (
    MirrorFailed,
    Patience,
    Session,
    body,
    content_range,
    from_status,
    open_response,
)
from kmip_data.sharing.addresses import file_system, pull_command
from kmip_data.sharing.share import damaged
from kmip_data.wording import shown_address, without_secrets

_ATTEMPTS: Final = 5  #: a dataset is read in thousands of requests, each of which may meet a bad moment
_MISSING: Final = frozenset({404, 410})
_PAST_THE_END: Final = 416

_own = threading.local()  #: ``session`` of a thread and ``owner``, the process that opened it


class Ranges:
    """The files below an address, of which ``address`` is what may be shown.

    Raises ``UsageError`` where nothing here reads such an address.
    """

    def __init__(self, address: str) -> None:
        self._target, self.address = address, shown_address(address).rstrip("/")
        self._patience = dataclasses.replace(Patience.from_environment(), attempts=_ATTEMPTS)
        self._over_http = is_http(address)
        if not self._over_http:
            file_system(address)

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Return bytes ``start`` to ``stop`` of a file; fewer where it ends before.

        Tries again what may pass. Raises ``FileNotFoundError`` where there is no such file for us;
        ``UsageError`` where the server gives whole files only; ``DamagedInput`` where it gives other bytes
        than asked for; ``SourceUnavailable`` where it does not answer.
        """
        once = self._by_http if self._over_http else self._by_fsspec
        for attempt in itertools.count(1):
            try:
                data = once(file, start, stop)
            except MirrorFailed as failure:
                if not failure.again or attempt >= self._patience.attempts:
                    raise SourceUnavailable(
                        f"{self.address}/{file} {without_secrets(failure.reason, self._target)}.",
                        expected=f"bytes {start:,} to {stop:,}",
                        found=f"no answer that can be read in {attempt} tries",
                        left="what was read before, in the cache",
                        next="the same again, later",
                    ) from failure
                time.sleep(failure.wait or self._patience.pause * 2 ** (attempt - 1))
                continue
            if len(data) > stop - start:
                raise self._other(file, start, stop, "more")
            return data
        raise AssertionError  # counts for ever

    def _by_http(self, file: str, start: int, stop: int) -> bytes:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        with open_http(self._target, file, headers, self._patience) as response:
            if response.status_code == _PAST_THE_END:
                return b""
            if response.ok and response.status_code != 206:
                raise UsageError(
                    f"{self.address} cannot be read from afar.",
                    expected="a server that gives ranges of a file (206 Partial Content)",
                    found=f"one that gives whole files only ({response.status_code})",
                    next=pull_command(self.address),
                )
            if response.status_code != 206:
                raise from_status(response, self._patience.longest_wait)
            told = content_range(response)
            if told is None or told[0] != start or not start <= told[1] < stop:
                found = response.headers.get("Content-Range", "no Content-Range")
                raise self._other(file, start, stop, found[:80])
            wanted, data = told[1] + 1 - start, bytearray()
            for piece in body(response, self._patience):
                data += piece
                if len(data) > wanted:
                    raise self._other(file, start, stop, "more")
            if len(data) < wanted:
                raise MirrorFailed("cut the connection", again=True)
            return bytes(data)

    def _by_fsspec(self, file: str, start: int, stop: int) -> bytes:
        system, root = file_system(self._target)  # which fsspec keeps for each process
        # Where files are opened to read from them, a cache of fsspec's would ask for more than is needed.
        options = {} if system.async_impl else {"cache_type": "none"}
        try:
            if "local" in system.protocol:  # where fsspec would wait for ever at a pipe
                with open_regular(f"{root}/{file}") as local:
                    local.seek(start)
                    return local.read(stop - start)
            data: bytes = system.cat_file(f"{root}/{file}", start=start, end=stop, **options)
        except (FileNotFoundError, PermissionError) as error:
            raise FileNotFoundError(
                f"{self.address}/{file}: {without_secrets(str(error), self._target)}"
            ) from error
        except Exception as error:  # each store has errors of its own
            text = " ".join(without_secrets(str(error), self._target).split())[:160]
            raise MirrorFailed(f"failed ({type(error).__name__}: {text})", again=True) from error
        return data

    def _other(self, file: str, start: int, stop: int, found: str) -> Exception:
        return damaged(f"{self.address}/{file}", f"bytes {start:,} to {stop:,}", found)


def is_http(address: str) -> bool:
    """True if an address is that of a web server."""
    return address.startswith(("http://", "https://"))


@contextlib.contextmanager
def open_http(
    address: str, file: str, headers: Mapping[str, str], patience: Patience
) -> Iterator[requests.Response]:
    """Ask a web server for a file below an address, and give the answer, of any status but "not found".

    Raises ``FileNotFoundError`` where there is no such file; :class:`MirrorFailed` where there is no answer,
    or it was redirected to where there is no such file, which says nothing of this address.
    """
    base, mark, query = address.partition("#")[0].partition("?")
    url = f"{base.rstrip('/')}/{urllib.parse.quote(file)}{mark}{query}"
    # An answer that is compressed on the way would be bytes of something else.
    with open_response(url, {**headers, "Accept-Encoding": "identity"}, patience, _session()) as response:
        if response.status_code in _MISSING:
            asked = requests.Request("GET", url).prepare().url
            if response.url != asked:
                raise MirrorFailed("redirects to an address without this file")
            raise FileNotFoundError(f"{shown_address(url)} {from_status(response, 0).reason}")
        yield response


def _session() -> Session:
    if getattr(_own, "owner", None) != os.getpid():  # a forked child shares no connection with its parent
        _own.owner, _own.session = os.getpid(), Session()
    session: Session = _own.session
    return session
