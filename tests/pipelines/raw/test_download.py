"""Downloads against good, odd and hostile servers: whole and right, or nothing at the final name."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import pytest
import trustme
from support.http_server import (
    File,
    Server,
    chunked,
    drip,
    page,
    redirect,
    serving,
    stall,
    status,
)

from kmip_data.errors import DamagedInput, OutOfResources, SourceUnavailable, UsageError
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.download import fetch_source
from kmip_data.runtime.http_client import Patience, retry_after

SIZE = 1_000_000
DATA = b"PK\3\4" + random.Random(1).randbytes(SIZE - 4)
OTHER = b"PK\3\4" + random.Random(2).randbytes(SIZE - 4)
SHA = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA).hexdigest()
GIT_BLOB = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest()
HINT = "kmip-data fetch toy --archive PATH"
QUICK = Patience(connect=2, stall=1.5, rate=2000, attempts=2, pause=0.01, longest_wait=1.0)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def target(tmp_path):
    return tmp_path / "raw" / "toy" / "toy.zip"


def source(*urls: str, **pinned: object) -> Source:
    return Source(name="toy.zip", mirrors=tuple(Mirror(url=url, **pinned) for url in urls))


def fetch(wanted: Source, target: Path, **options: object):
    return fetch_source(wanted, target, hint=HINT, quiet=True, patience=QUICK, **options)


def left_in(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir() if path.is_file()}


def assert_whole(target: Path, data: bytes = DATA) -> None:
    assert target.read_bytes() == data
    assert left_in(target) == {"toy.zip", "toy.zip.receipt.json"}


def assert_fails(wanted: Source, target: Path, reason: str, **options: object) -> SourceUnavailable:
    with pytest.raises(SourceUnavailable) as caught:
        fetch(wanted, target, **options)
    assert caught.value.exit_code == 3
    text = str(caught.value)
    assert reason in text
    for mirror in wanted.mirrors:
        assert mirror.url in text
    assert "kmip-data fetch toy --archive PATH" in text
    assert not target.exists()
    return caught.value


# --- good servers ---------------------------------------------------------------------------------


def test_a_download_is_whole_and_has_a_receipt(server, target):
    url = server.route("/toy.zip", File(DATA, last_modified="Mon, 01 Jan 2024 00:00:00 GMT"))
    receipt = fetch(source(url, sha256=SHA, bytes=SIZE), target)
    assert_whole(target)
    assert (receipt.name, receipt.origin, receipt.sha256, receipt.bytes) == ("toy.zip", url, SHA, SIZE)
    entry = json.loads(target.with_name("toy.zip.receipt.json").read_text())
    assert entry["etag"] == '"one"'
    assert entry["last_modified"].startswith("Mon")
    assert entry["time"].endswith("Z")
    assert server.requests[0][1]["User-Agent"].startswith("kmip-data/")
    assert server.requests[0][1]["Accept-Encoding"] == "identity"


def test_a_finished_download_is_not_asked_for_again(server, target):
    wanted = source(server.route("/toy.zip", File(DATA)))
    first = fetch(wanted, target)
    assert fetch(wanted, target) == first
    assert len(server.requests) == 1


def test_a_finished_file_that_changed_is_downloaded_again(server, target):
    wanted = source(server.route("/toy.zip", File(DATA)))
    fetch(wanted, target)
    target.write_bytes(DATA[:-1] + b"x")
    fetch(wanted, target)
    assert_whole(target)
    assert len(server.requests) == 2


#: answers of good servers, each with what is pinned
GOOD = {
    "git blob": (File(DATA), {"git_blob": GIT_BLOB}),
    "MD5": (File(DATA), {"md5": MD5}),
    "chunked": (chunked(DATA), {"sha256": SHA}),
    "until the connection is closed": (File(DATA, length=None), {"sha256": SHA}),
    # Some hosts label a .gz file with Content-Encoding: gzip; undoing it would break its digest.
    "labelled gzip": (File(DATA, extra={"Content-Encoding": "gzip"}), {"sha256": SHA}),
}


def test_good_servers(server, tmp_path):
    for number, (name, (step, pinned)) in enumerate(GOOD.items()):
        target = tmp_path / str(number) / "toy.zip"
        assert fetch(source(server.route(f"/{number}", step), **pinned), target).sha256 == SHA, name
        assert_whole(target)


def test_redirects_are_followed(server, target):
    final = server.route("/final", File(DATA))
    url = server.route("/toy.zip", redirect(final, 307))
    server.route("/first", redirect("/toy.zip"))
    receipt = fetch(source(server.url("/first")), target)
    assert receipt.origin == server.url("/first") != url
    assert_whole(target)


def test_a_plain_file_need_not_be_an_archive(server, target):
    wanted = Source(
        name="toy.zip",
        container="file",
        mirrors=(Mirror(url=server.route("/t", File(b"a,b\n1,2\n", kind="text/csv"))),),
    )
    fetch(wanted, target)
    assert target.read_bytes() == b"a,b\n1,2\n"


# --- resume ---------------------------------------------------------------------------------------


def test_a_cut_connection_resumes_where_it_stopped(server, tmp_path):
    for percent in (1, 10, 50, 90, 99):
        for pinned in ({"sha256": SHA}, {}):
            path, cut, sent = f"/{percent}{len(pinned)}", SIZE * percent // 100, server.sent
            target = tmp_path / path[1:] / "toy.zip"
            fetch(source(server.route(path, File(DATA, cut=cut), File(DATA)), **pinned), target)
            assert_whole(target)
            first, again = (headers for asked, headers in server.requests if asked == path)
            assert "Range" not in first
            assert (again["Range"], again["If-Range"]) == (f"bytes={cut}-", '"one"')
            assert server.sent - sent <= 1.02 * SIZE


def odd_range(text: str):
    def step(handler):
        handler.head(206, 10, Content_Range=text, ETag='"one"')
        handler.body(b"x" * 10)

    return step


PART = File(DATA, cut=300_000)
DAY = formatdate(1.7e9, usegmt=True)
WEAK = {"etag": 'W/"x"', "last_modified": DAY}
#: answers in turn, what is pinned, what must come of it, and ``If-Range`` of the second request
RESUMED = {
    **{
        f"odd range {text[:20]!r}": ([PART, odd_range(text), File(DATA)], {}, DATA, '"one"')
        for text in (
            *(f"bytes {'9' * 5000}-9/9", f"bytes 500000-999999/{'9' * 5000}", "bytes */*"),
            *("lines 5-6/7", "\x9b", ""),
        )
    },
    "other range": ([PART, File(DATA, shift=-5), File(DATA)], {}, DATA, '"one"'),
    "416": ([PART, status(416), File(DATA)], {}, DATA, '"one"'),
    "other total": ([PART, File(DATA + b"more", if_range=False), File(DATA)], {}, DATA, '"one"'),
    "range ignored": ([PART, File(DATA, ranges=False)], {}, DATA, '"one"'),
    "changed": ([PART, File(OTHER, etag='"two"')], {}, OTHER, '"one"'),
    "changed, If-Range ignored": ([PART, File(OTHER, etag='"two"', if_range=False)], {}, OTHER, '"one"'),
    "changed without a header": (
        [File(OTHER, etag=None, cut=300_000), File(DATA, etag=None)], {"sha256": SHA}, DATA, None,
    ),
    "no validator, no digest": ([File(OTHER, etag=None, cut=300_000), File(DATA, etag=None)], {}, DATA, None),
    "weak ETag with a date": ([File(DATA, cut=300_000, **WEAK), File(DATA, **WEAK)], {}, DATA, DAY),
    "control in the ETag": ([File(DATA, cut=9_000, etag="\x9b"), File(DATA, etag="\x9b")], {}, DATA, None),
    "long ETag": ([File(DATA, cut=9_000, etag="x" * 60_000), File(DATA, etag="x" * 60_000)], {}, DATA, None),
    "many cuts": (
        [*(File(DATA, cut=at) for at in range(50_000, SIZE, 50_000)), File(DATA)], {}, DATA, '"one"',
    ),
}  # fmt: skip


def test_bytes_of_two_files_are_never_joined(server, tmp_path):
    for number, (name, (steps, pinned, data, condition)) in enumerate(RESUMED.items()):
        target, sent = tmp_path / str(number) / "toy.zip", server.sent
        fetch(source(server.route(f"/{number}", *steps), **pinned), target)
        assert target.read_bytes() == data, name
        assert left_in(target) == {"toy.zip", "toy.zip.receipt.json"}, name
        asked = [headers for path, headers in server.requests if path == f"/{number}"]
        assert asked[1].get("If-Range") == condition, name
        if condition is None and not pinned:
            assert "Range" not in asked[1], name
            assert json.loads(target.with_name("toy.zip.receipt.json").read_text())["etag"] is None
        assert name != "many cuts" or server.sent - sent <= 1.02 * SIZE


def test_credentials_are_used_and_never_shown_or_kept(server, target, capsys):
    """Of a URL with a user, and with a token or a signature: not in what is printed, raised or written."""
    secrets = ("pa55word", "t0ken", "s1gnature")
    query = "?dl=1&token=t0ken&X-Amz-Signature=s1gnature"
    server.routes[f"/cut{query}"] = [File(DATA, cut=SIZE // 2), status(503, Retry_After="900")]
    server.routes[f"/good{query}"] = [File(DATA)]
    login = server.url("").replace("://", "://me:pa55word@")
    bad, ftp, good = f"{login}/cut{query}", f"ftp://me:pa55word@h/{query}", f"{login}/good{query}"
    with pytest.raises(SourceUnavailable) as caught:
        fetch_source(source(bad, ftp), target, hint=HINT, patience=QUICK)
    assert f"/cut{query}" in [path for path, _ in server.requests]
    assert server.requests[0][1]["Authorization"].startswith("Basic ")
    assert "/cut:" in str(caught.value)
    said = str(caught.value) + "".join(path.read_text() for path in target.parent.glob("*.json"))
    receipt = fetch_source(source(bad, good), target, hint=HINT, patience=QUICK)
    assert_whole(target)
    said += repr(receipt) + "".join(p.read_text() for p in target.parent.glob("*.json"))
    said += "".join(capsys.readouterr())
    assert "/good" in said
    assert "dl=1" not in said
    assert not [secret for secret in secrets if secret in said]


def test_a_download_that_needs_a_password_goes_on(server, target):
    url = server.route("/toy.zip", File(DATA, cut=SIZE // 2), File(DATA)).replace("://", "://me:pw@")
    fetch(source(url), target)
    assert_whole(target)
    assert server.requests[1][1]["Range"] == f"bytes={SIZE // 2}-"


def test_the_unfinished_part_outlives_the_run(server, target):
    url = server.route("/toy.zip", File(DATA, cut=400_000), File(DATA, cut=400_000))
    error = assert_fails(source(url), target, "cut the connection")
    assert "toy.zip.partial (400 kB of 1.0 MB); the next run resumes" in str(error)
    assert target.with_name("toy.zip.partial").read_bytes() == DATA[:400_000]
    server.route("/toy.zip", File(DATA))
    fetch(source(url), target)
    assert_whole(target)
    assert server.sent <= 1.02 * SIZE


def test_a_file_that_was_whole_but_not_renamed_needs_no_request(server, target):
    wanted = source(server.route("/toy.zip", File(DATA, cut=SIZE - 1)), sha256=SHA)
    with pytest.raises(SourceUnavailable):
        fetch(wanted, target)
    with target.with_name("toy.zip.partial").open("ab") as file:
        file.write(DATA[-1:])
    asked = len(server.requests)
    fetch(wanted, target)
    assert len(server.requests) == asked
    assert_whole(target)


def test_one_mirror_does_not_continue_the_bytes_of_another(server, target):
    one = server.route("/one", File(OTHER, cut=300_000), status(404))
    two = server.route("/two", File(DATA))
    fetch(source(one, two), target)
    assert_whole(target)
    assert all("Range" not in headers for path, headers in server.requests if path == "/two")


def test_mirrors_with_the_same_pinned_digest_do(server, target):
    one = server.route("/one", File(DATA, cut=300_000), status(404))
    two = server.route("/two", File(DATA, etag='"elsewhere"'))
    fetch(source(one, two, sha256=SHA), target)
    assert_whole(target)
    assert [headers.get("Range") for path, headers in server.requests if path == "/two"] == ["bytes=300000-"]
    assert server.sent <= 1.02 * SIZE


def test_the_mirror_of_an_unfinished_part_is_asked_first(server, target):
    one, two = server.route("/one", status(404)), server.route("/two", File(DATA, cut=500_000), status(503))
    assert_fails(source(one, two), target, "answers 503")
    server.route("/one", File(OTHER))
    server.route("/two", File(DATA))
    fetch(source(one, two), target)
    assert_whole(target)


# --- bad servers: the next mirror ------------------------------------------------------------------


def endless_redirect(handler):
    """Send elsewhere, and a body that has no end: nobody may read it."""
    handler.head(302, 10**15, Location="http://127.0.0.1:9/")
    while not handler.server.held.is_set():
        handler.body(bytes(2**20))


def raw_body(data: bytes, header: str):
    def step(handler):
        handler.wfile.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\n%s\r\n\r\n" % header.encode()
        )
        handler.wfile.write(data)
        handler.hang_up()

    return step


BAD = {
    "403": (status(403), "answers 403 Forbidden"),
    "404": (status(404), "answers 404 Not Found"),
    "429": (status(429, Retry_After="0"), "answers 429 Too Many Requests"),
    "429 long": (status(429, Retry_After="3600"), "asks to wait 3600 s"),
    "503": (status(503), "answers 503 Service Unavailable"),
    "html": (page(), "sent no archive: got text/html, 3 kB"),
    "html called zip": (File(b"<html>" * 100, kind="application/zip"), "got application/zip, 600 B"),
    "empty": (File(b""), "sent no archive"),
    "loop": (
        lambda handler: redirect(handler.server.url(handler.path))(handler),
        "redirects more than 10 times",
    ),
    "file": (redirect("file:///etc/passwd"), "redirects to file"),
    "stall": (stall(DATA, 5_000), "sent less than 2 kB per second for 1.5 s"),
    "silent": (stall(DATA, 0), "sent less than 2 kB per second"),
    "slow loris": (drip(DATA), "sent less than 2 kB per second"),
    "no header": (lambda handler: handler.server.held.wait(5), "sent nothing for too long"),
    "endless header": (raw_body(DATA, f"X-Long: {'x' * 70_000}"), "cut the connection"),
    "endless size of a chunk": (raw_body(b"0" * 70_000, "Transfer-Encoding: chunked"), "cut"),
    "too long declared": (File(DATA[:1000], length=SIZE), "has another file now"),
    "cut chunks": (chunked(DATA, cut=1000), "cut the connection"),
    "hang up": (lambda handler: handler.hang_up(), "cut the connection"),
    "no address": (redirect("http://[bad/"), "redirects to nowhere, which is not a web address"),
    "endless redirect": (endless_redirect, "cannot be connected to"),
    "huge length": (File(DATA, length="9" * 5000), "declares a length that is not a number of bytes"),
    "negative length": (File(DATA, length=-5), "declares a length"),
    "huge wait": (status(429, Retry_After="9" * 5000), "answers 429 Too Many Requests"),
    "wait for no date": (status(503, Retry_After="Mon, 01 Jan 0001 00:00:00 +9999"), "answers 503"),
    "wait for a huge zone": (
        status(503, Retry_After=f"Mon, 01 Jan 2024 00:00:00 +{'9' * 5000}"),
        "answers 503",
    ),
    "huge status": (lambda handler: handler.wfile.write(b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n"), "cut"),
    "huge chunk": (raw_body(b"f" * 5000 + b"\r\n" + DATA, "Transfer-Encoding: chunked"), "cut"),
    "negative chunk": (raw_body(b"-5\r\n" + DATA, "Transfer-Encoding: chunked"), ""),
    "unknown transfer coding": (raw_body(b"5\r\nxxxxx\r\n0\r\n\r\n", "Transfer-Encoding: snappy"), ""),
    "unknown charset": (
        File(b"<html>", kind="text/html; charset=\x9b31m-klingon"),
        "sent no archive: got text/html",
    ),
    "controls in a header": (File(b"", kind="\x1b]0;owned\x07\x9b31m"), "sent no archive"),
    "strange host": (redirect("http://a..b\u00fc/"), ""),
    "many headers": (File(DATA, extra={f"X-{i}": "y" for i in range(200)}), "cut the connection"),
    "304": (status(304), "answers 304 Not Modified"),
    "299": (status(299), "answers 299 an unknown status"),
    "206 unasked": (status(206), "answers 206 Partial Content"),
    "not http": (lambda handler: handler.wfile.write(b"\0garbage\r\n\r\n" * 9), "cut the connection"),
}


def test_a_bad_mirror_is_named_and_the_next_one_used(server, tmp_path):
    good = server.route("/good", *[File(DATA)] * len(BAD))

    def case(number: int, name: str) -> str | None:
        (step, reason), target = BAD[name], tmp_path / str(number) / "toy.zip"
        bad = server.route(f"/{number}", step)
        try:
            assert_fails(source(bad), target, reason)
            fetch(source(bad, good), target)
            assert_whole(target)
        except (Exception, pytest.fail.Exception) as error:
            return f"{name}: {error}"
        return None

    with ThreadPoolExecutor(8) as pool:  # most of them wait
        wrong = list(filter(None, pool.map(case, range(len(BAD)), BAD)))
    assert not wrong, f"{len(wrong)} of {len(BAD)}: {wrong}"


#: answers that are not the pinned file
NOT_PINNED = [
    (File(OTHER), {"sha256": SHA}, "expected " + SHA[:12]),
    (File(DATA + b"x"), {"bytes": SIZE}, f"has {SIZE + 1} bytes application/zip, expected {SIZE}"),
    (chunked(DATA + b"x"), {"bytes": SIZE}, f"sent more than {SIZE} bytes"),
    (chunked(DATA[:-1]), {"bytes": SIZE}, f"sent {SIZE - 1} bytes, expected {SIZE}"),
    (File(DATA, length=SIZE - 10), {"sha256": SHA}, "sent a file with SHA-256"),
    (File(DATA[:-9], length=None), {"sha256": SHA}, "sent a file with SHA-256"),
    (File(OTHER), {"md5": MD5}, "expected " + MD5[:12]),
    (File(OTHER), {"git_blob": GIT_BLOB}, "another generation of this path"),
]


def test_what_is_not_the_pinned_file_is_dropped(server, target):
    for number, (step, pinned, reason) in enumerate(NOT_PINNED):
        error = assert_fails(source(server.route(f"/{number}", step), **pinned), target, reason)
        assert "on disk" not in str(error)
        assert left_in(target) == set()


@pytest.mark.parametrize("step", [File(DATA), chunked(DATA)], ids=["declared", "chunked"])
def test_an_endless_file_is_cut_off(server, target, step):
    assert_fails(source(server.route("/toy.zip", step)), target, "500", max_bytes=500_000)
    assert left_in(target) == set()


def test_a_file_that_the_check_refuses_is_dropped(server, target):
    def check(path: Path) -> None:
        if path.read_bytes() != DATA:
            raise DamagedInput("It is cut short.")

    bad = server.route("/bad", File(OTHER))
    assert_fails(source(bad), target, "sent a file that is refused: It is cut short.", check=check)
    fetch(source(bad, server.route("/good", File(DATA))), target, check=check)
    assert_whole(target)


def test_retry_after_is_waited_for(server, target):
    url = server.route("/toy.zip", status(503, Retry_After="1"), File(DATA))
    begun = time.monotonic()
    fetch(source(url), target)
    assert time.monotonic() - begun >= 1
    assert_whole(target)


def test_retry_after_in_both_forms():
    assert retry_after("12") == 12
    assert 50 < retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert retry_after(formatdate(0, usegmt=True)) == 0
    assert retry_after("soon") is None
    assert retry_after("-3") is None
    assert retry_after(None) is None


def test_hosts_that_are_not_there(target):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused, unknown = f"http://127.0.0.1:{port}/toy.zip", "http://no-such-host.invalid/toy.zip"
    error = assert_fails(
        source(refused, unknown, "ftp://localhost/toy.zip"), target, "cannot be connected to"
    )
    assert "cannot be resolved" in str(error)


def test_a_proxy_of_the_environment_is_used(server, target, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url(""))
    asked = "http://data.example/toy.zip"
    server.routes[asked] = [File(DATA)]
    fetch(source(asked), target)
    assert_whole(target)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    target.unlink()
    assert_fails(source(asked), target, "cannot be reached through the proxy")


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def test_a_trusted_certificate_is_accepted(authority, target, tmp_path, monkeypatch):
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with serving(authority.issue_cert("localhost")) as server, serving() as plain:
        fetch(source(server.route("/toy.zip", File(DATA, cut=10_000), File(DATA))), target)
        assert_whole(target)
        target.unlink()
        down = redirect(plain.route("/toy.zip", File(DATA)))
        error = assert_fails(source(server.route("/toy.zip", down)), target, "redirects from https to http")
        assert plain.requests == []
        assert "refused" in str(error)
        for step in (drip(DATA), stall(DATA, 3000)):
            assert_fails(source(server.route("/slow", step)), target, "sent less than 2 kB")


def test_an_untrusted_certificate_is_refused(authority, target, tmp_path, monkeypatch):
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    cases = {
        "self-signed": (trustme.CA().issue_cert("localhost"), None),
        "wrong host": (authority.issue_cert("elsewhere.example"), bundle),
        "expired": (authority.issue_cert("localhost", not_after=past), bundle),
    }
    for certificate, trusted in cases.values():
        if trusted:
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(trusted))
        with serving(certificate) as server:
            url = server.route("/toy.zip", File(DATA))
            assert_fails(source(url), target, "TLS is never switched off")
            assert server.requests == []


def test_a_certificate_bundle_that_is_not_there(target, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file.pem")
    assert_fails(source("https://localhost:9/toy.zip"), target, "/no/such/file.pem")


# --- this machine ---------------------------------------------------------------------------------


def test_offline_never_imports_the_client(tmp_path):
    code = """
import socket, sys
class Refused(socket.socket):
    def __init__(self, *a, **k):
        raise AssertionError("a socket was opened")
socket.socket = Refused
from pathlib import Path
from kmip_data.errors import SourceUnavailable
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.obtain import fetch_dataset
try:
    fetch_dataset(load_manifest("s3dis"), Home(Path(sys.argv[1])), offline=True)
except SourceUnavailable:
    assert "urllib3" not in sys.modules and "requests" not in sys.modules
    print("unavailable")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False, text=True
    )
    assert done.stdout == "unavailable\n", done.stderr


@pytest.mark.parametrize("planted", ["partial", "hard", "fifo", "folder"])
def test_what_is_planted_at_the_partial_name_is_not_written_through(server, target, tmp_path, planted):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    target.parent.mkdir(parents=True)
    partial = target.with_name("toy.zip.partial")
    state = {"url": "x", "sha256": None, "etag": '"one"', "last_modified": None, "total": SIZE}
    wanted = source(server.route("/toy.zip", File(DATA)))
    for with_state in (False, True):
        if planted == "partial":
            partial.symlink_to(victim)
        elif planted == "hard":
            os.link(victim, partial)
        elif planted == "fifo":
            os.mkfifo(partial)
        else:
            partial.mkdir()
        if with_state:
            state["url"] = wanted.mirrors[0].url
            target.with_name("toy.zip.partial.json").write_text(json.dumps(state))
            with pytest.raises(UsageError):
                fetch(wanted, target)
            assert not target.exists()
        else:
            try:
                fetch(wanted, target)
            except UsageError:
                assert planted != "hard"
                partial.rmdir() if planted == "folder" else partial.unlink()
            else:
                assert_whole(target)
                target.unlink()
        assert victim.read_bytes() == b"precious"


def test_a_damaged_state_file_starts_again(server, target):
    target.parent.mkdir(parents=True)
    target.with_name("toy.zip.partial").write_bytes(OTHER[:1000])
    target.with_name("toy.zip.partial.json").write_bytes(b"\xff{not json")
    fetch(source(server.route("/toy.zip", File(DATA))), target)
    assert_whole(target)


def test_a_full_disk_keeps_the_part(server, target):
    import resource

    url = server.route("/toy.zip", File(DATA))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(OutOfResources) as caught:
            fetch(source(url), target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_code == 6
    assert "the next run resumes there" in str(caught.value)
    fetch(source(url), target)
    assert_whole(target)
    assert server.requests[1][1]["Range"] == "bytes=200000-"


def test_a_file_too_large_for_the_disk_is_not_begun(server, target):
    def step(handler):
        handler.head(200, 10**15, Content_Type="application/zip")
        handler.body(DATA)
        handler.hang_up()

    with pytest.raises(OutOfResources, match="does not fit on the disk"):
        fetch(source(server.route("/toy.zip", step)), target)
    assert left_in(target) == set()


def test_a_name_that_is_too_long_is_said(server, tmp_path):
    with pytest.raises(UsageError, match="too long"):
        fetch(source(server.route("/toy.zip", File(DATA))), tmp_path / ("x" * 300) / "toy.zip")


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan"])
def test_a_wrong_stall_time_in_the_environment_is_said(server, target, monkeypatch, text):
    monkeypatch.setenv("KMIP_DATA_STALL_TIMEOUT", text)
    with pytest.raises(UsageError, match="KMIP_DATA_STALL_TIMEOUT"):
        fetch_source(source(server.route("/toy.zip", File(DATA))), target, hint=HINT, quiet=True)


CHILD = """
import sys
from pathlib import Path
from kmip_data.manifest import Mirror, Source, dataset_names, load_manifest
from kmip_data.pipelines.raw.download import fetch_source
source = Source(name="toy.zip", mirrors=(Mirror(url=sys.argv[1]),))
fetch_source(source, Path(sys.argv[2]), hint="", quiet=True)
"""


def kill_and_resume(server: Server, target: Path, share: float, how: int) -> None:
    """Kill a download in a child at about ``share`` of its size, then finish it here."""
    data = b"PK\3\4" + random.Random(share).randbytes(3_000_000)
    url = server.route("/toy.zip", File(data, pace=0.003), File(data))
    child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(target)], stderr=subprocess.PIPE)
    partial = target.with_name("toy.zip.partial")
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if partial.exists() and partial.stat().st_size >= share * len(data):
            break
        time.sleep(0.002)
    child.send_signal(how)
    child.communicate()
    kept = partial.stat().st_size
    assert 0 < kept < len(data)
    assert not target.exists()
    time.sleep(0.1)  # the server notices that nobody listens
    before = server.sent
    fetch(source(url), target)
    assert_whole(target, data)
    assert server.sent - before == len(data) - kept
    assert kept >= share * len(data)


@pytest.mark.parametrize(("share", "how"), [(0.9, signal.SIGKILL), (0.3, signal.SIGINT)])
def test_a_stopped_download_resumes(server, target, share, how):
    kill_and_resume(server, target, share, how)
