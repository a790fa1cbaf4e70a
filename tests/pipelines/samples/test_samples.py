"""Samples have the exact upstream layout and every class, of every size, and depend on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.builds.raw_graphs import records_of, records_of_folder, write_sample
from support.builds.records import encode_shard
from support.cases import read_contents
from support.datasets import one_of_each

from kmip_data.manifest import load_manifest

BLOCKS = {"s3dis", "shapenet-part"}  #: thousands of points a record


def has_many_graphs(name: str) -> bool:
    manifest = load_manifest(name)
    return not manifest.generated and manifest.expected.graphs != 1


WITHOUT_TARGETS = {"pcqm4mv2"}  # some of its molecules have none and are in no part
SMALL = [name for name in one_of_each() if has_many_graphs(name) and name not in BLOCKS]


@pytest.mark.parametrize("name", [*SMALL, *sorted(BLOCKS)])
def test_samples_depend_on_the_seed_alone(name, tmp_path):
    np.random.seed(len(name))  # noqa: NPY002 -- the global generator must not matter
    one, same = (read_contents(write_sample(name, tmp_path / place, limit=7)) for place in "ab")
    other = read_contents(write_sample(name, tmp_path / "c", limit=7, seed=1))
    assert one == same
    assert one != other


@pytest.mark.parametrize("name", SMALL)
def test_samples_of_every_size_can_be_built(name, tmp_path):
    for limit in (1, 2, 3, 30):
        folder = write_sample(name, tmp_path / f"raw{limit}", limit=limit)
        pipeline, records = records_of_folder(name, folder, tmp_path / f"work{limit}")
        shard = encode_shard(
            records, pipeline.schema(pipeline.Params()), dataset=name, build_key="0" * 12
        )
        assert shard.facts["graphs"] == len(records) == limit
        keys = [record.key for record in records]
        parts = pipeline.split(records_of(keys), pipeline.SplitParams(), folder).parts
        rows = sorted(row for part in parts.values() for row in part)
        assert len(set(rows)) == len(rows)
        assert rows == list(range(limit)) or name in WITHOUT_TARGETS
        assert parts["train"]
    assert all(parts.values())
