"""``bench``: tables, JSON and rows for the page."""

from __future__ import annotations

import pytest
from support.cli import kmip

from kmip_data.cli import benchmarks
from kmip_data.cli.benchmarks import Row


@pytest.fixture
def one_topic(monkeypatch, tmp_path):
    """A topic ``pace`` beside the real ones, found by being there."""
    (tmp_path / "pace.py").write_text(
        "def rows(*, quick=False):\n    from kmip_data.cli import benchmarks\n    return benchmarks.MADE\n"
    )
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    rows = [
        Row(
            what="ours",
            against="theirs",
            ours=0.002,
            theirs=0.01,
            unit="s",
            ratio=5.0,
            spread=(4.5, 5.5),
            target="4×",
            met=True,
        ),
        Row(
            what="slow",
            against="",
            ours=3.0,
            theirs=None,
            unit="s",
            ratio=None,
            target="< 1 s",
            met=False,
            note="a note",
        ),
    ]
    monkeypatch.setattr(benchmarks, "MADE", rows, raising=False)
    yield
    import sys

    sys.modules.pop("kmip_data.cli.benchmarks.pace", None)


def test_bench_table(one_topic):
    outcome = kmip("bench", "all", "--quick")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[1].split() == [
        "ours",
        "theirs",
        "2",
        "ms",
        "10",
        "ms",
        "5.00×",
        "4.50",
        "to",
        "5.50",
        "4×",
        "yes",
    ]
    assert "NO" in lines[2]
    assert "a note" in outcome.out
    assert "quick: not the figures of a full run" in outcome.out


def test_bench_json_and_markdown(one_topic):
    found = kmip("bench", "pace", "--json", "--quiet").json
    assert found["quick"] is False
    assert found["rows"][0]["ratio"] == 5.0
    assert found["rows"][0]["topic"] == "pace"
    assert "cores" in found["machine"]
    text = kmip("bench", "pace", "--markdown").out
    assert (
        "| ours | theirs | 4× | **5.00×** (4.50 to 5.50); 2 ms against 10 ms | `make bench TOPIC=pace` |"
        in text
    )


def test_startup_is_measured():
    from benchmarks import startup

    rows = startup.rows(quick=True)
    assert [row.target for row in rows] == ["< 0.1 s", "< 0.3 s"]
    assert all(row.ours >= 0 for row in rows)
