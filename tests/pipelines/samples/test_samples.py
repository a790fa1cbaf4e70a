"""Samples have the exact upstream layout and every class, of every size, and depend on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.builds.raw_graphs import records_of, records_of_folder
from support.builds.records import encode_shard
from support.cases import contents

from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline

SMALL = ["cifar10", "coco-sp", "malnet-tiny", "pascalvoc-sp", "pcqm-contact"]
SMALL += ["peptides-func", "peptides-struct", "echo-sssp", "echo-energy", "zinc", "zinc-full"]
SMALL += ["mnist", "pattern", "cluster"]
SMALL += ["ogbg-molhiv"]


def write(name, folder, **options):
    folder.mkdir()
    load_pipeline(load_manifest(name)).sample(folder, **options)
    return folder


@pytest.mark.parametrize("name", [*SMALL, "s3dis", "shapenet-part"])
def test_samples_depend_on_the_seed_alone(name, tmp_path):
    np.random.seed(len(name))  # noqa: NPY002 -- the global generator must not matter
    one, same = (contents(write(name, tmp_path / place, limit=7)) for place in "ab")
    other = contents(write(name, tmp_path / "c", limit=7, seed=1))
    assert one == same
    assert one != other


@pytest.mark.parametrize("name", SMALL)
def test_samples_of_every_size_can_be_built(name, tmp_path):
    for limit in (1, 2, 3, 30):
        folder = write(name, tmp_path / f"raw{limit}", limit=limit)
        pipeline, records = records_of_folder(name, folder, tmp_path / f"work{limit}")
        shard = encode_shard(
            records, pipeline.schema(pipeline.Params()), dataset=name, build_key="0" * 12
        )
        assert shard.facts["graphs"] == len(records) == limit
        keys = [record.key for record in records]
        parts = pipeline.split(records_of(keys), pipeline.SplitParams(), folder).parts
        assert sorted(row for part in parts.values() for row in part) == list(range(limit))
        assert parts["train"]
    assert all(parts.values())
