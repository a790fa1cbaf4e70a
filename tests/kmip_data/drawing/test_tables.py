"""Tables of a build, against its card."""

from __future__ import annotations

from support.builds import s3dis_records, s3dis_schema, write_build
from support.cli import kmip

from kmip_data.drawing.tables import tables_of


def test_sizes_of_parts_add_up(tmp_path):
    parts = {"train": range(5), "val": [5], "test": [6, 7, 8]}
    build = write_build(tmp_path / "b", s3dis_records(9), s3dis_schema(4), parts=parts)
    sizes = tables_of(build.card)[0]
    assert [row[1] for row in sizes.rows] == ["all", "train", "val", "test"]
    whole, *of_parts = (row[2] for row in sizes.rows)
    assert whole == sum(of_parts) == 9
    assert sizes.rows[0][3:5] == [build.card.counts["nodes"], build.card.counts["edges"]]


def test_info_prints_them(build):
    outcome = kmip("info", build.path)
    assert outcome.code == 0, outcome.err
    for words in ("random-seed0", "80.0%", "out-degree"):
        assert words in outcome.out, words
    assert "28.86" not in outcome.out, "edges of the whole graph are not those of a part's nodes"
