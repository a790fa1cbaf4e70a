"""Downloads against good, odd and hostile servers: whole and right, or nothing at the final name."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import pytest
import trustme
from support.attacks.archives import CONTENT, good_zip
from support.attacks.http_server import File, chunked, drip, page, redirect, serving, stall, status
from support.raises import raises

from kmip_data.errors import OutOfResources, SourceUnavailable, UsageError
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw import download
from kmip_data.pipelines.raw.copies import read_receipt
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import parse_retry_after

SIZE = 1_000_000
DATA = b"PK\3\4" + random.Random(1).randbytes(SIZE - 4)
OTHER = b"PK\3\4" + random.Random(2).randbytes(SIZE - 4)
SHA = hashlib.sha256(DATA).hexdigest()
MD5 = hashlib.md5(DATA).hexdigest()
GIT_BLOB = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest()
REMEDY = "kmip-data fetch toy --archive PATH"
QUICK = {
    "CONNECT_SECONDS": 2,
    "STALL_SECONDS": 1.5,
    "MIN_BYTES_PER_SECOND": 2000,
    "RETRY_DELAY_SECONDS": 0.01,
    "MAX_RETRY_AFTER": 1.0,
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name, value in QUICK.items():
        monkeypatch.setattr(http_client, name, value)
    monkeypatch.setattr(download, "_MAX_FAILURES", 2)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "raw" / "toy" / "toy.zip"


def source(*urls: str, **pinned: object) -> Source:
    return Source(name="toy.zip", mirrors=tuple(Mirror(url=url, **pinned) for url in urls))


def fetch(wanted: Source, target: Path, *, quiet: bool = True):
    receipt = download.download_source(wanted, target.parent, remedy=REMEDY, quiet=quiet)
    assert receipt == read_receipt(target)
    return receipt


def left_in(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir() if path.is_file()}


def assert_whole(target: Path, data: bytes = DATA) -> None:
    assert target.read_bytes() == data
    assert left_in(target) == {"toy.zip", "toy.zip.receipt.json"}


def assert_fails(wanted: Source, target: Path, *named: object) -> SourceUnavailable:
    addresses = [mirror.url for mirror in wanted.mirrors]
    with raises(SourceUnavailable, naming=[*addresses, *named]) as caught:
        fetch(wanted, target)
    assert caught.value.steps == ["kmip-data fetch toy --archive PATH"]
    assert not target.exists()
    return caught.value


# --- good servers ---------------------------------------------------------------------------------


def test_a_download_is_whole_and_has_a_receipt(server, target):
    url = server.route("/toy.zip", File(DATA, last_modified="Mon, 01 Jan 2024 00:00:00 GMT"))
    receipt = fetch(source(url, sha256=SHA, bytes=SIZE), target)
    assert_whole(target)
    assert (receipt.name, receipt.origin, receipt.sha256, receipt.bytes) == (
        "toy.zip",
        url,
        SHA,
        SIZE,
    )
    entry = json.loads(target.with_name("toy.zip.receipt.json").read_text())
    assert entry["time"].endswith("Z")
    assert server.requests[0][1]["User-Agent"].startswith("kmip-data/")
    assert server.requests[0][1]["Accept-Encoding"] == "identity"


def test_a_finished_download_is_repeated_only_if_it_changed(server, target):
    wanted = source(server.route("/toy.zip", File(DATA)))
    first = fetch(wanted, target)
    assert fetch(wanted, target) == first is not None
    assert len(server.requests) == 1
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
    "huge length": (File(DATA, length="9" * 5000), {"sha256": SHA}),
    # Some hosts label a .gz file with Content-Encoding: gzip; undoing it would break its digest.
    "labelled gzip": (File(DATA, extra={"Content-Encoding": "gzip"}), {"sha256": SHA}),
}


def test_every_kind_of_good_server_is_downloaded_from(server, tmp_path):
    for number, (name, (step, pinned)) in enumerate(GOOD.items()):
        target = tmp_path / str(number) / "toy.zip"
        assert fetch(source(server.route(f"/{number}", step), **pinned), target).sha256 == SHA, name
        assert_whole(target)


def test_redirects_are_followed(server, target):
    server.route("/toy.zip", redirect(server.route("/final", File(DATA)), 307))
    receipt = fetch(source(server.route("/first", redirect("/toy.zip"))), target)
    assert receipt.origin == server.url("/first")
    assert_whole(target)


def test_a_plain_file_need_not_be_an_archive(server, target):
    url = server.route("/t", File(b"a,b\n1,2\n", kind="text/csv"), page())
    wanted = Source(name="toy.zip", container="file", mirrors=(Mirror(url=url),))
    fetch(wanted, target)
    assert target.read_bytes() == b"a,b\n1,2\n"
    target.unlink()
    assert_fails(wanted, target, "text/html")


# --- resume ---------------------------------------------------------------------------------------


def test_a_cut_connection_resumes_where_it_stopped(server, tmp_path):
    for percent, pinned in ((1, {"sha256": SHA}), (50, {}), (99, {})):
        path, cut, sent = f"/{percent}", SIZE * percent // 100, server.sent
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
CHUNKED_PART = File(DATA, cut=300_000, chunked=True)
DAY = formatdate(1.7e9, usegmt=True)
WEAK = {"etag": 'W/"x"', "last_modified": DAY}
DATED = {"etag": None, "last_modified": DAY}
BARE = File(DATA, etag=None, if_range=False)
#: answers in turn, what is pinned, what must come of it, and ``If-Range`` of the second request
RESUMED = {
    **{
        f"odd range {text[:20]!r}": ([PART, odd_range(text), File(DATA)], {}, DATA, '"one"')
        for text in (f"bytes {'9' * 5000}-9/9", "lines 5-6/7", "")
    },
    "other range": ([PART, File(DATA, shift=-5), File(DATA)], {}, DATA, '"one"'),
    "416": ([PART, status(416), File(DATA)], {}, DATA, '"one"'),
    "other total": ([PART, File(DATA + b"more", if_range=False), File(DATA)], {}, DATA, '"one"'),
    "range ignored": ([PART, File(DATA, ranges=False)], {}, DATA, '"one"'),
    "changed": ([PART, File(OTHER, etag='"two"')], {}, OTHER, '"one"'),
    "changed, If-Range ignored": ([PART, File(OTHER, etag='"two"', if_range=False)], {}, OTHER, '"one"'),
    "no validator, no digest": ([File(OTHER, etag=None, cut=300_000), File(DATA, etag=None)], {}, DATA, None),
    "weak ETag with a date": ([File(OTHER, cut=300_000, **WEAK), File(DATA, **WEAK)], {}, DATA, None),
    "a date": ([File(OTHER, cut=300_000, **DATED), File(DATA, **DATED)], {}, DATA, None),
    "continued without an ETag": ([File(OTHER, cut=300_000), BARE, File(DATA)], {}, DATA, '"one"'),
    "a digest and no ETag": (
        [File(DATA, etag=None, cut=300_000), BARE], {"sha256": SHA}, DATA, None,
    ),
    "no length, then one of several ranges": (
        [CHUNKED_PART, *(File(DATA, last=at) for at in (400_000, 700_000)), File(DATA)], {}, DATA, '"one"',
    ),
    "no length, then a range of an unknown size": (
        [CHUNKED_PART, File(DATA, last=400_000, total="*"), File(DATA)], {}, DATA, '"one"',
    ),
    "no length, then a range of another size": (
        [CHUNKED_PART, File(DATA, last=400_000), File(DATA + b"more"), File(DATA)], {}, DATA, '"one"',
    ),
    "control in the ETag": ([File(DATA, cut=9_000, etag="\x9b"), File(DATA, etag="\x9b")], {}, DATA, None),
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
        assert name != "many cuts" or server.sent - sent <= 1.02 * SIZE


@pytest.mark.parametrize("synced", [0, 65_536, 300_000])
def test_after_a_crash_only_flushed_bytes_are_trusted(server, target, monkeypatch, synced):
    """The file system may have kept the size of a file, and zeros instead of its last bytes."""
    url = server.route("/toy.zip", File(DATA, cut=300_000), status(404), File(DATA))
    monkeypatch.setattr(download, "SYNC_BYTES", synced or SIZE)
    assert_fails(source(url), target, "404")
    partial = target.with_name("toy.zip.partial")
    recorded = json.loads(partial.with_name("toy.zip.partial.json").read_text())["synced"]
    assert synced <= recorded <= 300_000
    with partial.open("r+b") as file:
        file.seek(recorded)
        file.write(bytes(300_000 - recorded))

    boot = target.with_name("boot_id")
    boot.write_text("of another boot")
    monkeypatch.setattr(download, "BOOT_ID", boot)
    fetch(source(url), target)
    boot.unlink()
    assert_whole(target)
    asked = server.requests[-1][1].get("Range")
    assert asked == (f"bytes={recorded}-" if recorded else None)


def test_bytes_of_an_unknown_boot_are_trusted_only_if_flushed(
    server, target, monkeypatch, tmp_path
):
    monkeypatch.setattr(download, "BOOT_ID", tmp_path / "missing")
    url = server.route("/toy.zip", File(DATA, cut=300_000), status(404), File(DATA))
    assert_fails(source(url), target, "404")
    fetch(source(url), target)
    assert_whole(target)
    assert "Range" not in server.requests[-1][1]


GZIP = gzip.compress(b"a,b\n" * 20_000, mtime=0)


def test_a_file_without_a_length_is_complete_only_by_its_checksums(server, tmp_path):
    """Some headers tell no end: a connection that is cut looks like one that is closed."""
    good_zip(tmp_path / "good.zip")
    zipped = (tmp_path / "good.zip").read_bytes()
    cases = {
        "zip": (zipped, True),
        "gzip": (GZIP, True),
        "cut-zip": (zipped[:-100], False),
        "cut-gzip": (GZIP[:-4], False),
        "text": (b"a,b\n1,2\n", False),
    }
    for name, (data, is_complete) in cases.items():
        target = tmp_path / name / "toy.zip"
        url = server.route(f"/{name}", File(data, kind="x/y", length=None, etag=None))
        wanted = source(url).model_copy(update={"container": "file"})
        if is_complete:
            assert "complete by the checksums" in fetch(wanted, target).origin, name
            assert target.read_bytes() == data
        else:
            assert_fails(wanted, target)


def test_a_file_that_is_packed_in_transit_is_refused(server, target):
    url = server.route("/toy.zip", File(GZIP, extra={"Content-Encoding": "gzip"}))
    assert_fails(source(url), target, "gzip")


def test_credentials_are_used_and_never_shown_or_kept(server, target, capsys):
    """Users, tokens and signatures in a URL are never printed, raised or written."""
    secrets = ("pa55word", "t0ken", "s1gnature")
    query = "?dl=1&token=t0ken&X-Amz-Signature=s1gnature"
    server.routes[f"/cut{query}"] = [File(DATA, cut=SIZE // 2), status(503, Retry_After="900")]
    server.routes[f"/good{query}"] = [File(DATA)]
    login = server.url("").replace("://", "://me:pa55word@")
    bad, ftp, good = f"{login}/cut{query}", f"ftp://me:pa55word@h/{query}", f"{login}/good{query}"
    with pytest.raises(SourceUnavailable) as caught:
        fetch(source(bad, ftp), target, quiet=False)
    assert f"/cut{query}" in [path for path, _ in server.requests]
    assert server.requests[0][1]["Authorization"].startswith("Basic ")
    assert "/cut:" in str(caught.value)
    said = str(caught.value) + "".join(path.read_text() for path in target.parent.glob("*.json"))
    receipt = fetch(source(bad, good), target, quiet=False)
    assert_whole(target)
    said += repr(receipt) + "".join(p.read_text() for p in target.parent.glob("*.json"))
    said += "".join(capsys.readouterr())
    assert "/good" in said
    assert "dl=1" not in said
    assert not [secret for secret in secrets if secret in said]


def test_the_unfinished_part_outlives_the_run(server, target):
    url = server.route("/toy.zip", File(DATA, cut=400_000), File(DATA, cut=400_000))
    error = assert_fails(source(url), target)
    assert "toy.zip.partial (400 kB of 1.0 MB)" in error.left
    assert target.with_name("toy.zip.partial").read_bytes() == DATA[:400_000]
    server.route("/toy.zip", File(DATA))
    fetch(source(url), target)
    assert_whole(target)
    assert server.sent <= 1.02 * SIZE


def test_a_file_that_was_whole_but_not_renamed_needs_no_request(server, target):
    wanted = source(server.route("/toy.zip", File(DATA, cut=SIZE - 1)), sha256=SHA)
    assert_fails(wanted, target)
    with target.with_name("toy.zip.partial").open("ab") as file:
        file.write(DATA[-1:])
    asked = len(server.requests)
    fetch(wanted, target)
    assert len(server.requests) == asked
    assert_whole(target)


def test_a_mirror_never_continues_the_bytes_of_another(server, target):
    one = server.route("/one", File(OTHER, cut=300_000), status(404))
    fetch(source(one, server.route("/two", File(DATA))), target)
    assert_whole(target)
    assert "Range" not in server.requests[-1][1]


def test_the_mirror_of_a_partial_download_is_tried_first(server, target):
    one, two = (
        server.route("/one", status(404)),
        server.route("/two", File(DATA, cut=500_000), status(503)),
    )
    assert_fails(source(one, two), target, 503)
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
    "429 long": (status(429, Retry_After="3600"), 3600),
    "503": (status(503), 503),
    "html": (page(), "text/html"),
    "html called zip": (File(b"<html>" * 100, kind="application/zip"), "<html>"),
    "loop": (
        lambda handler: redirect(handler.server.url(handler.path))(handler), "TooManyRedirects",
    ),
    "file": (redirect("file:///etc/passwd"), "InvalidSchema"),
    "stall": (stall(DATA, 5_000), "2 kB"),
    "slow loris": (drip(DATA), "2 kB"),
    "no header": (lambda handler: handler.server.held.wait(5), "TimeoutError"),
    "too long declared": (File(DATA[:1000], length=SIZE),),
    "hang up": (lambda handler: handler.hang_up(), "RemoteDisconnected"),
    "no address": (redirect("http://[bad/"), "ValueError"),
    "endless redirect": (endless_redirect, "Connection refused"),
    "huge chunk": (raw_body(b"f" * 5000 + b"\r\n" + DATA, "Transfer-Encoding: chunked"),),
    "controls in a header": (File(b"", kind="\x1b]0;owned\x07\x9b31m"),),
    "206 unasked": (status(206), 206),
    "not http": (lambda handler: handler.wfile.write(b"\0garbage\r\n\r\n" * 9), "BadStatusLine"),
}  # fmt: skip


def test_a_bad_mirror_is_named_and_the_next_one_used(server, tmp_path):
    good = server.route("/good", *[File(DATA)] * len(BAD))

    def case(number: int, name: str) -> str | None:
        (step, *named), target = BAD[name], tmp_path / str(number) / "toy.zip"
        bad = server.route(f"/{number}", step)
        try:
            assert_fails(source(bad), target, *named)
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
    (File(OTHER), {"sha256": SHA}, SHA[:12]),
    (File(DATA + b"x"), {"bytes": SIZE}, SIZE + 1),
    (chunked(DATA + b"x"), {"bytes": SIZE}, SIZE),
    (chunked(DATA[:-1]), {"bytes": SIZE}, SIZE - 1),
    (File(DATA, length=SIZE - 10), {"sha256": SHA}, "SHA-256"),
    (File(DATA[:-9], length=None), {"sha256": SHA}, "SHA-256"),
    (File(OTHER), {"md5": MD5}, MD5[:12]),
    (File(OTHER), {"git_blob": GIT_BLOB}, "git blob"),
]


def test_files_with_another_digest_are_dropped(server, target):
    for number, (step, pinned, value) in enumerate(NOT_PINNED):
        error = assert_fails(source(server.route(f"/{number}", step), **pinned), target, value)
        assert error.left is None
        assert left_in(target) == set()


def test_an_endless_file_is_cut_off(server, target):
    content = CONTENT.model_copy(update={"max_total_bytes": 500_000})
    for step in (File(DATA), chunked(DATA)):
        wanted = source(server.route("/toy.zip", step)).model_copy(update={"content": content})
        assert_fails(wanted, target, 500_000)
        assert left_in(target) == set()


def test_an_archive_of_other_content_is_dropped(server, target):
    good_zip(target.parent.parent.with_suffix(".zip"))
    data = target.parent.parent.with_suffix(".zip").read_bytes()
    bad, good = server.route("/bad", File(OTHER)), server.route("/good", File(data))
    known = {"content": CONTENT}
    assert_fails(source(bad).model_copy(update=known), target)
    fetch(source(bad, good).model_copy(update=known), target)
    assert_whole(target, data)


def test_retry_after_is_respected(server, target):
    begun = time.monotonic()
    fetch(source(server.route("/toy.zip", status(503, Retry_After="1"), File(DATA))), target)
    assert time.monotonic() - begun >= 1
    assert_whole(target)


def test_retry_after_may_be_a_date():
    assert 50 < parse_retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert parse_retry_after(formatdate(0, usegmt=True)) == 0


@pytest.mark.parametrize("text", ["soon", "-3", None])
def test_an_invalid_retry_after_is_ignored(text):
    assert parse_retry_after(text) is None


def test_missing_hosts_are_named(target):
    refused, unknown = "http://127.0.0.1:9/toy.zip", "http://no-such-host.invalid/toy.zip"
    ftp = "ftp://localhost/t.zip"
    error = assert_fails(source(refused, unknown, ftp), target)
    refusals = error.found.split("\n")
    assert [line.partition("(")[2].rstrip(")") for line in refusals] == [
        "Connection refused",
        "Name or service not known",
        "InvalidSchema",
    ]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def trusted(authority, tmp_path, monkeypatch):
    """Certificates of an authority that the client trusts."""
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(bundle)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    return authority


@pytest.fixture
def secure(trusted):
    with serving(trusted.issue_cert("localhost")) as server:
        yield server


def test_a_trusted_certificate_is_accepted(secure, target):
    fetch(source(secure.route("/toy.zip", File(DATA, cut=10_000), File(DATA))), target)
    assert_whole(target)


def test_a_redirect_from_https_to_http_is_refused(secure, server, target):
    down = redirect(server.route("/toy.zip", File(DATA)))
    wanted = source(secure.route("/toy.zip", down))
    assert_fails(wanted, target)
    assert server.requests == []


@pytest.mark.parametrize("step", [drip(DATA), stall(DATA, 3000)], ids=["drip", "stall"])
def test_a_slow_server_with_a_certificate_is_cut_off(secure, target, step):
    assert_fails(source(secure.route("/slow", step)), target, "2 kB")


def test_a_stalled_mirror_is_left_for_the_next_one(server, target):
    silent = server.route("/silent", lambda handler: handler.server.held.wait(5))
    good = server.route("/good", File(DATA))
    fetch(source(silent, good), target)
    assert_whole(target)
    assert [path for path, _ in server.requests] == ["/silent", "/good"]


CERTIFICATES = {
    "another authority": lambda _: trustme.CA().issue_cert("localhost"),
    "another host": lambda trusted: trusted.issue_cert("elsewhere.example"),
    "expired": lambda trusted: trusted.issue_cert(
        "localhost", not_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    ),
}


@pytest.mark.parametrize("issue", CERTIFICATES.values(), ids=CERTIFICATES)
def test_an_untrusted_certificate_is_refused(trusted, target, issue):
    with serving(issue(trusted)) as server:
        wanted = source(server.route("/toy.zip", File(DATA)))
        assert_fails(wanted, target)
        assert server.requests == []


# --- this machine ---------------------------------------------------------------------------------


def test_offline_never_imports_the_client(tmp_path):
    code = """
import sys
from pathlib import Path
from kmip_data.errors import SourceUnavailable
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.find_or_download import fetch_dataset
try:
    fetch_dataset(load_manifest("s3dis"), Home(Path(sys.argv[1])), offline=True)
except SourceUnavailable:
    assert not {"urllib3", "requests"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.parametrize("planted", ["link", "hard link", "pipe", "folder"])
def test_a_link_at_the_partial_name_is_not_followed(server, target, tmp_path, planted):
    victim, partial = tmp_path / "victim", target.with_name("toy.zip.partial")
    victim.write_bytes(b"precious")
    target.parent.mkdir(parents=True)
    wanted = source(server.route("/toy.zip", File(DATA)))
    state = {"url": wanted.mirrors[0].url, "etag": '"one"', "total": SIZE}
    target.with_name("toy.zip.partial.json").write_text(json.dumps(state))
    {
        "link": lambda: partial.symlink_to(victim),
        "hard link": lambda: os.link(victim, partial),
        "pipe": lambda: os.mkfifo(partial),
        "folder": partial.mkdir,
    }[planted]()
    with pytest.raises(UsageError):
        fetch(wanted, target)
    assert not target.exists()
    assert victim.read_bytes() == b"precious"


def test_a_full_disk_keeps_the_part(server, target):
    import resource

    wanted = source(server.route("/toy.zip", File(DATA)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with raises(OutOfResources, naming="toy.zip") as caught:
            fetch(wanted, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.left
    fetch(wanted, target)
    assert_whole(target)
    assert server.requests[1][1]["Range"] == "bytes=200000-"


def test_a_file_too_large_for_the_disk_is_not_begun(server, target):
    def step(handler):
        handler.head(200, 10**15, Content_Type="application/zip")
        handler.body(DATA)
        handler.hang_up()

    with pytest.raises(OutOfResources):
        fetch(source(server.route("/toy.zip", step)), target)
    assert left_in(target) == set()


CHILD = """
import sys
from pathlib import Path
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.download import download_source as fetch
source = Source(name="toy.zip", mirrors=(Mirror(url=sys.argv[1]),))
fetch(source, Path(sys.argv[2]).parent, remedy="", quiet=True)
"""


def test_a_killed_download_resumes(server, target):
    data = b"PK\3\4" + random.Random(0).randbytes(3_000_000)
    url = server.route("/toy.zip", File(data, pace=0.003), File(data))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(target)], stderr=subprocess.PIPE
    )
    partial = target.with_name("toy.zip.partial")
    while not (partial.exists() and partial.stat().st_size >= len(data) // 2):
        assert child.poll() is None
        time.sleep(0.002)
    child.kill()
    child.communicate()
    kept = partial.stat().st_size
    assert kept < len(data)
    assert not target.exists()
    time.sleep(0.1)  # the server notices that nobody listens
    before = server.sent
    fetch(source(url), target)
    assert_whole(target, data)
    assert server.sent - before == len(data) - kept
