"""Bounds of tokens by room (``tools/structure.py``)."""

from tools import structure


def test_a_room_above_its_bound_is_named_and_rooms_without_one():
    lines = list(structure.exceeded_rooms({"a": 101, "b": 50, "new": 1}, {"a": 100, "b": 100}))
    assert len(lines) == 2
    assert "new: a room without a bound" in lines[0]
    assert "a: 101 tokens, at most 100" in lines[1]


def test_bounds_leave_room_for_parts_and_only_fall():
    lowered = structure.lower_bounds({"a": 1_010, "b": 9_700, "c": 5}, {"a": 1_000, "b": 20_000})
    assert lowered == {"a": 1_000, "b": 10_000, "c": 100}
