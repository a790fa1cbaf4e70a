"""A stand-in for S3, and a small build."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
import torch
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.pipelines.find_builds import ensure_columns


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Three rings of nine nodes with a split and an added column."""
    ring = torch.stack([torch.arange(9), torch.arange(9).roll(1)])
    graphs = [Data(x=torch.rand(9, 2), edge_index=ring) for _ in range(3)]
    build = kmip_data.save(graphs, tmp_path_factory.mktemp("b") / "rings", split={"train": [0, 1]})
    ensure_columns(build, ["degree-profile-2.8"], quiet=True)
    return build


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
    bucket = f"bucket-{secrets.token_hex(4)}"  # the server's buckets belong to this process
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}/rings"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
