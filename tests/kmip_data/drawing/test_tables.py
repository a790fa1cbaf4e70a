"""Tables of a build, against its card."""

from __future__ import annotations

from support.builds import s3dis_records, s3dis_schema, write_build

from kmip_data.drawing.tables import tables_of


def test_sizes_of_parts_add_up(tmp_path):
    parts = {"train": range(5), "val": [5], "test": [6, 7, 8]}
    build = write_build(tmp_path / "b", s3dis_records(9), s3dis_schema(4), parts=parts)
    sizes = tables_of(build)[0]
    assert [row[1] for row in sizes.rows] == ["all", "train", "val", "test"]
    whole, *of_parts = (row[2] for row in sizes.rows)
    assert whole == sum(of_parts) == 9
    assert sizes.rows[0][3:5] == [build.card.counts["nodes"], build.card.counts["edges"]]
