"""Builds with the counts of the published set, and builds that only look so."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.raises import raises
from support.shared import ROOT, shared_data

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, IncompleteBuildWarning
from kmip_data.format.card import SplitEntry, SplitPart, read_card
from kmip_data.manifest import load_manifest, with_build_name
from kmip_data.pipelines import build as building
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.engine import finish
from kmip_data.pipelines.engine.finish import differing_counts, read_record_table
from kmip_data.reading.dataset import ShardedDataset

MALNET = {"graphs": 5_000, "nodes": 7_051_560, "edges": 14_299_690}
SIZES = {"train": 3_500, "val": 500, "test": 1_000}


def split(sizes: dict[str, int]) -> dict[str, SplitEntry]:
    parts = {
        name: SplitPart(graphs=size, nodes=0, edges=0, digest="") for name, size in sizes.items()
    }
    return {
        "upstream": SplitEntry(
            file="splits/upstream.h5", sha256="", rule="upstream", parameters={}, parts=parts
        )
    }


DIFFERING = [
    ({}, []),
    ({"graphs": 100}, ["100 of the 5,000 graphs", "nodes per graph", "edges per graph"]),
    ({"nodes": 7_000_000}, ["1,400.0000 nodes per graph, published are 1,410.3120"]),
    ({"edges": 2 * MALNET["edges"]}, ["edges per graph, published are 2,859.9380"]),
    ({"classes": [2, 0, 1, 1, 1]}, ["4 of the 5 classes"]),
    ({"val": 499}, ["499 of 500 in val of the split 'upstream'"]),
]


@pytest.mark.parametrize(("changes", "says"), DIFFERING)
def test_every_count_that_the_manifest_knows_is_compared(changes, says):
    facts = {**MALNET, **SIZES, "classes": [1_000] * 5, **changes}
    sizes = {name: facts[name] for name in SIZES}
    counts = {name: facts[name] for name in (*MALNET, "classes")}
    manifest = load_manifest("malnet-tiny")
    differences = list(differing_counts(manifest, counts, split(sizes), compare_averages=True))
    assert len(differences) == len(says)
    for text, expected in zip(differences, says, strict=True):
        assert expected in text


def test_a_key_that_two_records_have_is_named_however_late_it_comes(monkeypatch):
    """Among 300,000 keys, of which a search by pairs would compare 10¹¹."""
    keys = [f"room {number}" for number in range(300_000)]
    shard = SimpleNamespace(
        keys=[*keys, keys[-1]], node_ptr=np.arange(300_002), edge_ptr=np.zeros(300_002, int)
    )
    monkeypatch.setattr(finish, "Shard", lambda *_, **__: shard)
    entry, schema = SimpleNamespace(file="0.h5"), SimpleNamespace(y_column=None)
    with raises(DamagedInput, naming="room 299999"):
        read_record_table(ROOT, [entry], schema)


def test_other_parameters_may_give_other_nodes_and_edges():
    counts = {**MALNET, "edges": 1, "classes": [1] * 5}
    assert not list(
        differing_counts(load_manifest("malnet-tiny"), counts, {}, compare_averages=False)
    )


def test_recipe_outputs_have_their_own_title():
    for recipe in ("city", "graphs", "points", "superpixels"):
        assert with_build_name(load_manifest(recipe), "marais").title.startswith("marais: ")
    assert with_build_name(load_manifest("s3dis"), "s3dis") == load_manifest("s3dis")


def test_a_partial_source_is_used_until_the_complete_one_exists(tmp_path, monkeypatch):
    archive, home = shared_data("indoor3d_sem_seg_hdf5_data_small.zip"), Home(tmp_path)
    options = {"home": home, "parameters": {"k": 3}, "unpinned": True, "jobs": 1, "quiet": True}
    part = building.build_dataset("s3dis", archives=[archive], **options)
    card = read_card(part.path)
    assert card.coverage == "part of the published set"
    assert "49 of the 23,585 graphs" in card.notes[-1]
    with pytest.warns(IncompleteBuildWarning):
        ShardedDataset(part, "train")
    assert building.build_dataset("s3dis", **options).path == part.path
    pipeline = building.load_pipeline(load_manifest("s3dis"))
    whole = RawCopy(home.raw, {"other": "1" * 64}, (), downloaded=True)
    monkeypatch.setattr(building, "list_copies", lambda folder: [whole])
    params = pipeline.Params(k=3)
    assert (
        building._matching_build(pipeline, params, home, sample=False, options=ExecutionOptions())
        is None
    )
