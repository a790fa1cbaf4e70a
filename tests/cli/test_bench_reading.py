"""The benchmarks of reading and disk run and say what they measured; how fast is not a test's matter."""

import pytest
from benchmarks import disk, reading_small

from kmip_data.cli.benchmarks import reading


def test_disk():
    rows = disk.rows(quick=True)
    assert [row.target for row in rows] == ["≥ 5×", "≥ 3.5×"]
    assert all(row.met for row in rows)  # bytes do not depend on the machine
    assert all("generated" in row.note for row in rows)


@pytest.mark.slow
def test_reading():
    rows = reading.rows(quick=True)
    assert [row.target for row in rows if row.target] == ["≥ 5×", "≥ 3×", "≥ 15×", "≥ 5×", "≥ 15×"]
    assert all(row.spread[0] <= row.ratio <= row.spread[1] for row in rows)
    assert all("generated" in row.note for row in rows if row.target)


@pytest.mark.slow
def test_reading_of_small_graphs():
    rows = list(reading_small.rows(quick=True))
    assert [row.target for row in rows] == ["≥ 3×", "≥ 3×"]
    assert all(row.spread[0] <= row.ratio <= row.spread[1] for row in rows)
    assert all("sample peptides" in row.note for row in rows)
