"""Rule: no message, warning, repr or command shows user, password, query or fragment of an address."""

from __future__ import annotations

import re
import urllib.parse
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import requests
from support.attacks.http_server import serving_folder
from support.builds.shares import share_folder
from support.cli import kmip

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError
from kmip_data.manifest import Mirror
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import RequestFailed, failure_of_exception
from kmip_data.sharing.pull import pull
from kmip_data.sharing.remote import file_system
from kmip_data.text import strip_secrets

SECRET = "Xq7-s3cr3t"
LOGINS = ["me:{}@", "{}@", "me:{}/y@", "me:x?{}@", "me:x#{}@", "me:a@{}@"]
TAILS = [
    "?jwt={}",
    "?pass={}&x=1",
    "#token={}",
    "?a=1&X-Amz-Credential={}",
    "?{}",
    "/x.zip;v=1?sig={}",
]


def addresses(scheme: str, host: str) -> list[str]:
    """Every way in which an address may hold a secret."""
    before = [f"{scheme}://{login.format(SECRET)}{host}/data" for login in LOGINS]
    return before + [f"{scheme}://{host}/data{tail.format(SECRET)}" for tail in TAILS]


def collect_messages(call: Callable[[], object]) -> str:
    """Collect the error, the warnings and the result of a call as text."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            text = repr(call())
        except KmipDataError as error:
            text = f"{error} {error!r} {vars(error)}"
    return " ".join([text, *(str(warning.message) for warning in seen)])


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr(http_client, "STALL_SECONDS", 1.0)


def test_no_secret_of_an_address_is_shown(small, tmp_path, subtests) -> None:
    home = Home(tmp_path / "home")
    share_folder(small.path, tmp_path / "pushed/data")

    def pull_it(address: str) -> object:
        return pull(address, home, quiet=True)

    def open_it(address: str) -> object:
        return kmip_data.open(address, home=home.path).build

    dead = [
        *addresses("http", "127.0.0.1:9"),
        *addresses("nope", "host"),
        *addresses("github", "main"),
    ]
    for address in dead:
        for call in (pull_it, open_it) if address.startswith("http") else (open_it,):
            with subtests.test(f"{call.__name__} {address}"):
                assert SECRET not in collect_messages(partial(call, address))
    for address in [*dead, *addresses("s3", "bucket")]:
        with subtests.test(f"file system {address}"):
            assert SECRET not in collect_messages(
                lambda address=address: file_system(address) and None
            )
    with serving_folder(tmp_path / "pushed") as server:
        for address in addresses("http", server.address.removeprefix("http://")):
            for call in (open_it, pull_it):
                with subtests.test(f"{call.__name__}: {address}"):
                    text = collect_messages(partial(call, address))
                    assert SECRET not in text
                    misread = "/y@" in address or "me:x" in address or "x.zip" in address
                    assert call is not open_it or "Build(" in text or misread


def test_no_secret_is_shown_by_commands_mirrors_and_in_texts_of_libraries(
    small, tmp_path, subtests
) -> None:
    for address in addresses("http", "127.0.0.1:9"):
        path = address.partition("127.0.0.1:9")[2]
        error = requests.ConnectionError(f"Max retries exceeded with url: {path} (Caused by x)")
        with subtests.test(address):
            outcome = kmip("pull", address, "--home", tmp_path)
            assert SECRET not in outcome.out + outcome.err
            assert SECRET not in Mirror(url=address).address
            assert SECRET not in strip_secrets(f"asked {address!r}, (of {address}): none")
            assert (
                SECRET
                not in failure_of_exception(error).reason
                + RequestFailed(f"failed ({address})").reason
            )
            text = f"no such key: {SECRET} or {urllib.parse.quote(SECRET)}"
            assert SECRET not in strip_secrets(text, address)
    for address in ("memory://share/x?y=1", "memory://me:pw@share/z"):
        outcome = kmip("push", small.path, address, "-q", "--home", tmp_path)
        assert not {"y=1", "pw"} & set(re.split("[?:@/ ]", outcome.out + outcome.err))
    for text in (
        "/home/me/c#/a?b",
        "hf://datasets/me/x@main",
        "http://host:8080/a@b/c.zip",
        "s3://b/k:v",
    ):
        assert strip_secrets(f"There is no {text!r}.") == f"There is no {text!r}."
    long = "a" * 10**6  # in a message of bad input; a scheme without a bound takes 40 minutes
    assert SECRET not in strip_secrets(f"{long}://{SECRET}@host/")


def test_an_address_in_the_path_of_another_is_shown():
    text = strip_secrets("no answer of https://me:pw@host/http://b/c")
    assert text == "no answer of https://host/http://b/c"
