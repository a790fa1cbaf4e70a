"""Digests of ``manifests/digests``: every sample and what is built offline have them here, too."""

from __future__ import annotations

import pytest
from support.cli import kmip

from kmip_data.builds.home import Home
from kmip_data.builds.verify import published_builds, unlike_published
from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names
from kmip_data.pipelines.build import build_dataset

OWN_FILES = {"city", "points", "superpixels"}  #: recipes, for files of the user
OFFLINE = {"helsinki", "long-range"}


@pytest.mark.parametrize("name", sorted(set(dataset_names()) - OWN_FILES))
def test_builds_have_the_published_digests(name, tmp_path) -> None:
    card = build_dataset(name, home=Home(tmp_path), sample=name not in OFFLINE, jobs=1).card
    assert published_builds()[card.key].items() >= card.digests.items()
    assert unlike_published(card) == []


def test_another_build_is_told(tmp_path) -> None:
    home = ("--home", tmp_path)
    assert kmip("build", "paris", "--sample", "-q", *home).code == 0
    whole = kmip("verify", "paris", "--sample", "--published", *home)
    assert (whole.code, "published" in whole.out) == (0, True)
    card = build_dataset("paris", home=Home(tmp_path), sample=True, jobs=1).card
    [shard] = card.shards
    other = card.model_copy(update={"shards": [shard.model_copy(update={"sha256": "0" * 64})]})
    assert unlike_published(other) == [shard.file]
    assert unlike_published(card.model_copy(update={"shards": []})) == [shard.file]
    # A split with another seed is not published; the build is.
    assert kmip("build", "paris", "--sample", "--split-seed", "5", "-q", *home).code == 0
    assert kmip("verify", "paris", "--sample", "--published", *home).code == 0
    with pytest.raises(UsageError, match="paris-sample"):
        unlike_published(card.model_copy(update={"key": "another"}))


def test_every_table_is_of_a_dataset() -> None:
    assert len(published_builds()) >= len(set(dataset_names()) - OWN_FILES)
    assert all(table["about"] for table in published_builds().values())
