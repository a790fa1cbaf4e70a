"""A stand-in for S3."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on moto's server."""
    reason = "moto's server or s3fs is not installed"
    server_module = pytest.importorskip("moto.server", reason=reason)
    s3fs = pytest.importorskip("s3fs", reason=reason)
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{secrets.token_hex(4)}"  # the server's buckets are those of this process
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}/rings"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
