"""Published digests of datasets: every sample and what is built offline have them here, too."""

from __future__ import annotations

import pytest
import torch
from support import other_cpu
from support.cli import kmip, python
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.builds.verify import files_unlike_published, published_digests_by_key
from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset, build_own
from kmip_data.strict_model import read_shipped
from tools import published

OWN_FILES = {"city", "graphs", "points", "superpixels"}  #: recipes, for files of the user
PUBLISHED = sorted(set(dataset_names()) - OWN_FILES)
#: Two whose numbers could differ: targets from a sum of products, and a city's sinusoids.
FEW = ["peptides-struct", "paris"]
OTHERS = sorted(set(PUBLISHED) - set(FEW))


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [FEW, pytest.param(OTHERS, marks=pytest.mark.torture)], ids=["few", "others"]
)
def test_another_cpu_has_the_published_digests(names) -> None:
    """A child process without AVX, FMA and their BLAS kernels gives the published digests."""
    pytest.importorskip("threadpoolctl")
    child = python("tests/support/other_cpu.py", *names, **other_cpu.variables()).json
    # The switches work: the child is another machine.
    assert child["machine"]["numpy"] == []
    assert child["machine"]["numba"] == "generic"
    assert not {"Haswell", "SkylakeX", "Zen"} & set(child["machine"]["blas"])
    assert child["functions"] == other_cpu.functions()
    assert len(child["builds"]) == len(names)
    for key, digests in child["builds"].items():
        assert published_digests_by_key()[key].items() >= digests.items()


@pytest.mark.parametrize(
    "name",
    [
        # Grids of eight sizes come from one reader; lrim-generated makes 10,000 of them.
        pytest.param(
            name,
            marks=[pytest.mark.torture]
            if name.startswith("lrim-") and name not in {"lrim-32-easy", "lrim-256-hard"}
            else [],
        )
        for name in PUBLISHED
    ],
)
def test_builds_have_the_published_digests(name, tmp_path) -> None:
    sample = name not in other_cpu.OFFLINE
    card = build_dataset(name, home=Home(tmp_path), sample=sample, jobs=1).card
    pinned = published_digests_by_key().get(card.key, {})
    assert pinned.items() >= card.digests.items(), (
        "The bytes of this sample are not the published ones. Where that is meant, raise `version` of "
        "the pipeline; then `python tools/published.py digests HOME` of a home with the build."
    )
    assert files_unlike_published(card) == []


def test_verify_compares_with_the_published_digests(tmp_path) -> None:
    home = ("--home", tmp_path)
    assert kmip("build", "paris", "--sample", "-q", *home).code == 0
    whole = kmip("verify", "paris", "--sample", "--published", *home)
    assert (whole.code, "published" in whole.out) == (0, True)
    card = build_dataset("paris", home=Home(tmp_path), sample=True, jobs=1).card
    [shard] = card.shards
    other = card.model_copy(update={"shards": [shard.model_copy(update={"sha256": "0" * 64})]})
    assert files_unlike_published(other) == [shard.file]
    assert files_unlike_published(card.model_copy(update={"shards": []})) == [shard.file]
    # A split with another seed is not published; the build is.
    assert kmip("build", "paris", "--sample", "--split-seed", "5", "-q", *home).code == 0
    assert kmip("verify", "paris", "--sample", "--published", *home).code == 0
    with pytest.raises(UsageError):
        files_unlike_published(card.model_copy(update={"key": "another"}))


def test_digests_of_private_builds_are_not_written(tmp_path, monkeypatch) -> None:
    """Builds of a user's files have no published digests; only registered datasets have them."""
    home = Home(tmp_path / "home")
    registered = build_dataset("texas", home=home, sample=True, jobs=1).card
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n0,1\n1,2\n")
    private = build_own("graphs", "patients", {"path": edges}, home=home, jobs=1).card
    graph = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0], [1]]))
    kmip_data.save([graph], home.built / "saved")
    monkeypatch.setattr(published, "MANIFESTS", tmp_path)
    for name in ("texas", "graphs"):
        (tmp_path / "datasets" / name).mkdir(parents=True)

    published.write_digests(home)
    (file,) = tmp_path.joinpath("datasets").rglob("*.toml")
    assert file == tmp_path / "datasets/texas/digests.toml"
    written = file.read_text("utf-8")
    assert registered.key in written
    assert private.key not in written


def test_published_digests_match_the_current_versions() -> None:
    """No digest of an earlier pipeline version remains."""
    stale = []
    for name in PUBLISHED:
        version = load_pipeline(load_manifest(name)).version
        for key, table in read_shipped(f"datasets/{name}", "digests").items():
            label, _, _ = table["about"].partition(":")
            if not label.endswith(f", pipeline {version}"):
                stale.append(f"{name}: {key} ({label}), today {version}")
    assert not stale, "build these again, then `python tools/published.py digests HOME`"


def test_every_digest_table_belongs_to_a_dataset() -> None:
    assert len(published_digests_by_key()) >= len(set(dataset_names()) - OWN_FILES)
    assert all(table["about"] for table in published_digests_by_key().values())
