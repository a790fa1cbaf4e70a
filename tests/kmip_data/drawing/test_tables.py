"""Tables of a build, against its card."""

from __future__ import annotations

import itertools

import numpy as np
from support.builds import s3dis_records, s3dis_schema, write_build
from support.cli import kmip

import kmip_data
from kmip_data.drawing.tables import class_eccentricity, column_spreads, tables_of


def test_sizes_of_parts_add_up(tmp_path):
    parts = {"train": range(5), "val": [5], "test": [6, 7, 8]}
    build = write_build(tmp_path / "b", s3dis_records(9), s3dis_schema(4), parts=parts)
    sizes = tables_of(build)[0]
    assert [row[1] for row in sizes.rows] == ["all", "train", "val", "test"]
    whole, *of_parts = (row[2] for row in sizes.rows)
    assert whole == sum(of_parts) == 9
    assert sizes.rows[0][3:5] == [build.card.counts["nodes"], build.card.counts["edges"]]


def test_eccentricity_of_each_class(city):
    rows = list(class_eccentricity(city))
    assert [row[0] for row in rows] == list(range(10))
    assert sum(row[1] for row in rows) == len(city.classes)
    assert all(row[2] <= row[3] <= row[4] for row in rows)
    assert all(a[4] <= b[2] for a, b in itertools.pairwise(rows)), "chunks of one order"


def test_columns(build, city):
    x = kmip_data.open(build.path)[0].x.numpy().astype(np.float64)
    rows = list(column_spreads(city))
    assert len(rows) == 37, "OpenStreetMap's numbers have no mean"
    found = np.array([row[1:] for row in rows])
    expected = [x.min(axis=0), x.mean(axis=0), x.max(axis=0), x.std(axis=0), (x != 0).mean(axis=0)]
    assert np.allclose(found, np.stack(expected, axis=1))


def test_info_prints_them(build):
    outcome = kmip("info", build.path)
    assert outcome.code == 0, outcome.err
    for words in ("highway_0 footway", "length [m]", "eccentricity [m]: least", "80.0%", "ODbL 1.0"):
        assert words in outcome.out, words
    assert "28.86" not in outcome.out, "edges of the whole graph are not those of a part's nodes"
