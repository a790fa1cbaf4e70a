"""A home folder of the test's own, and small finished builds in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.builds.written import s3dis_records, s3dis_schema, write_build
from support.cli import expect_success
from support.runs import sweeps
from support.type_advice import TINY, work_in_copy, write_assay

from kmip_data.builds.home import Build
from kmip_data.models.sweeps import running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, found by its environment variable."""
    folder = tmp_path / "home"
    monkeypatch.setenv("KMIP_DATA_HOME", str(folder))
    monkeypatch.delenv("KMIP_DATA_ACCEPT_LICENSE", raising=False)
    return folder


@pytest.fixture
def make_build(home: Path) -> Callable[..., Build]:
    """Write ``built/NAME`` with 10 random graphs, as a finished S3DIS build of k = 4."""

    def make(name: str = "s3dis-k4", **options: object) -> Build:
        parts = options.pop("parts", {"train": [0, 1, 2, 3, 4, 6], "val": [7, 9], "test": [8, 5]})
        parameters = {"knn_rule": "exact", "short_graphs": None, **options.pop("parameters", {})}
        return write_build(
            home / "built" / name,
            s3dis_records(10),
            s3dis_schema(4),
            parts=parts,
            parameters=parameters,
            class_names=["ceiling", "floor", "wall"],
            **options,
        )

    return make


@pytest.fixture(scope="session")
def home_of_sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished sample of twelve S3DIS blocks, k = 4, two of them in the test part."""
    folder = tmp_path_factory.mktemp("sample")
    target = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home", folder)
    expect_success("build", *target, "--jobs", "1", "-q")
    return folder


@pytest.fixture
def sample(home_of_sample: Path) -> Path:
    """The build folder itself."""
    return next((home_of_sample / "built").glob("s3dis-sample-*"))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps train no network."""
    monkeypatch.setattr(running, "PROGRAM_COMMAND", sweeps.PROGRAM)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)
    for name, value in sweeps.stand_in_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the build ``assay`` of a table, and the run ``assay/gcn/one``."""
    folder = tmp_path_factory.mktemp("trained")
    write_assay(folder)
    home = ("--home", folder / "home")
    build = ("build", "graphs", "--name", "assay", "--archive", folder / "assay.csv", "-q")
    expect_success(*build, "--set", "label=toxic", *home)
    expect_success("train", "assay", "--model", "gcn", *TINY, "--name", "one", *home)
    return folder


@pytest.fixture
def user(trained_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the table, whose home has the build and the run."""
    work_in_copy(trained_home, tmp_path, monkeypatch)
    # `doctor` tries every search backend in a process of its own.
    check = "kmip_data.models.training.self_check.check_gpu_features"
    monkeypatch.setattr(check, lambda *_: {})
    return tmp_path
