"""Units are deterministic runs of the chosen records, in source order."""

from __future__ import annotations

from kmip_data.pipelines.parameters import BuildParams
from kmip_data.pipelines.units_and_splits import (
    chosen_rows_by_file,
    units_by_size,
    units_of_parts,
    units_of_rows,
)


def test_rows_are_cut_in_runs() -> None:
    units = units_of_rows(range(5), 2, "pictures")
    assert [unit.selection["rows"] for unit in units] == [[0, 1], [2, 3], [4]]
    assert [unit.name for unit in units] == [
        "pictures 0 to 1",
        "pictures 2 to 3",
        "pictures 4 to 4",
    ]
    assert units_of_rows([], 2) == []


def test_a_unit_is_as_large_as_allowed_unless_one_name_is_larger() -> None:
    sizes = {"a": 3, "b": 4, "c": 9, "d": 1}
    units = units_by_size(sizes, 7, "graphs")
    assert [unit.selection["graphs"] for unit in units] == [["a", "b"], ["c"], ["d"]]
    assert [unit.index for unit in units] == [0, 1, 2]
    assert [unit.name for unit in units] == ["graphs a to b", "graphs c to c", "graphs d to d"]


def test_a_limit_is_spread_over_all_files() -> None:
    inside = list(chosen_rows_by_file([("x", 4), ("y", 6)], BuildParams(limit=5)))
    assert inside == [("x", 0, [0, 2]), ("y", 4, [0, 2, 4])]


def test_parts_come_in_the_order_of_their_sizes() -> None:
    units = units_of_parts({"train": 3, "val": 0, "test": 1}, BuildParams(), 2)
    selections = [(unit.name, unit.selection) for unit in units]
    assert selections == [
        ("train 0 to 1", {"part": "train", "rows": [0, 1]}),
        ("train 2 to 2", {"part": "train", "rows": [2]}),
        ("test 0 to 0", {"part": "test", "rows": [0]}),
    ]
