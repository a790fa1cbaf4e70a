"""The engine: what it builds, what its card says, and every way a unit can go wrong."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.attacks import crash_points
from support.builds.toy_pipeline import ToyParams, build_toy, built_units, toy_record, write_raw
from support.cases import wait_until
from support.raises import raises

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.reader import Shard
from kmip_data.format.split_files import read_split
from kmip_data.runtime.progress import Progress

pytestmark = pytest.mark.real_workers


def test_shards_hold_the_records_in_source_order(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 20)
    build = build_toy(tmp_path, jobs=1)
    position = 0
    for entry in build.card.shards:
        shard = Shard(build.path / entry.file)
        assert (shard.dataset, shard.build_key) == ("toy", build.card.key)
        assert (entry.graphs, entry.nodes, entry.edges) == (shard.graphs, shard.nodes, shard.edges)
        for i, key in enumerate(shard.keys):
            record = toy_record(f"toy/{position:04d}", 5 + position % 4, ToyParams())
            start, stop = (int(row) for row in shard.node_ptr[i : i + 2])
            assert key == record.key
            np.testing.assert_array_equal(
                shard.read("node/x", start, stop), record.columns["node/x"]
            )
            np.testing.assert_array_equal(shard.read("edge/neighbor", start, stop), record.neighbor)
            position += 1
    assert position == 20
    assert [shard.file for shard in build.card.shards] == [f"shards/{i:05d}.h5" for i in range(7)]


@pytest.mark.parametrize("edges", ["neighbor", "index"])
def test_card_counts_what_a_plain_loop_counts(tmp_path: Path, edges: str) -> None:
    write_raw(tmp_path / "raw", 20)
    card = build_toy(tmp_path, jobs=1, parameters={"edges": edges}).card
    records = [toy_record(f"toy/{i:04d}", 5 + i % 4, ToyParams()) for i in range(20)]
    labels = [record.columns["node/y"] for record in records]
    assert card.counts == {"graphs": 20, "nodes": 130, "edges": 260}
    classes = card.statistics["classes"]
    assert classes["total"] == [sum(int((row == c).sum()) for row in labels) for c in range(3)]
    split = card.splits["graph-fold0"]
    assert split.parameters == {
        "split_rule": "upstream", "fold": 0, "level": "graph", "from_raw": False, "tenths": 10
    }  # fmt: skip
    for part, rows in (("test", [0, 10]), ("val", [1, 11])):
        entry = split.parts[part]
        assert entry.graphs == 2
        assert entry.nodes == sum(records[i].num_nodes for i in rows)
        assert entry.edges == 2 * entry.nodes
        counted = [sum(int((labels[i] == c).sum()) for i in rows) for c in range(3)]
        assert classes["splits"]["graph-fold0"][part] == counted
    sizes = card.statistics["nodes_per_graph"]
    assert (sizes["min"], sizes["mean"], sizes["max"]) == (5, 6.5, 8)
    assert sizes["histogram"] == {"low": [5, 6, 7, 8], "high": [5, 6, 7, 8], "count": [5, 5, 5, 5]}
    for degree in ("in_degree", "out_degree"):
        assert card.statistics[degree]["histogram"] == {"low": [2], "high": [2], "count": [130]}


def test_card_says_whether_the_set_is_complete_partial_or_a_sample(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 20)
    whole = build_toy(tmp_path, jobs=1).card
    assert whole.complete
    assert whole.notes == ["A toy."]
    part = build_toy(tmp_path, jobs=1, parameters={"limit": 4}).card
    assert not part.complete
    assert "4 of the 20" in part.notes[-1]
    sample = build_toy(tmp_path, jobs=1, sample=True)
    assert sample.card.sample
    assert not sample.card.complete
    assert "SAMPLE" in sample.card.notes[-1]
    assert "(sample: generated" in (sample.path / "README.md").read_text()


def test_a_split_of_nodes_for_a_dataset_of_one_graph(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 1, nodes=4)
    build = build_toy(tmp_path, jobs=1, split_parameters={"level": "node"})
    split = build.card.splits["node-fold0"]
    assert {part: entry.nodes for part, entry in split.parts.items()} == {
        "train": 1,
        "val": 1,
        "test": 1,
    }
    code = read_split(build.path / split.file).part_codes
    assert code is not None
    labels = toy_record("toy/0000", 4, ToyParams()).columns["node/y"]
    counts = build.card.statistics["classes"]["splits"]["node-fold0"]
    assert counts["val"] == [int((labels[np.flatnonzero(code == 1)] == c).sum()) for c in range(3)]


@pytest.mark.parametrize(
    ("order", "error", "named"),
    [
        (
            "fail=oops",
            DamagedInput,
            ["graphs 3", 1, "toy/0003", "oops"],
        ),
        (
            "damaged=twice",
            DamagedInput,
            ["graphs 3", 1, "twice"],
        ),
        ("memory", OutOfResources, ["graphs 3", 1]),
        ("die", OutOfResources, ["graphs 3"]),
    ],
)
def test_a_failing_record_is_named_and_the_rest_stays(
    tmp_path: Path, order: str, error: type[Exception], named: list[object]
) -> None:
    write_raw(tmp_path / "raw", 12, orders={4: order})
    with raises(error, naming=[*named, "1 of 4"]):
        build_toy(tmp_path, jobs=1)
    folder = next((tmp_path / "built").glob("toy-*"))
    assert not (folder / "card.json").exists()
    assert not list(folder.rglob("*.partial"))
    # The same raw files without the fault: another content, so another key; the old folder goes on.
    assert (folder / "shards/00000.h5").is_file()


def test_the_bar_counts_graphs_of_shards_that_are_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    update = Progress.update

    def record(progress: Progress, amount: int) -> None:
        update(progress, amount)
        if progress.unit == "graphs":
            shown.append(progress.done)

    monkeypatch.setattr(Progress, "update", record)
    write_raw(tmp_path / "raw", 5, orders={1: "sleep=1", 2: "sleep=3"})
    build_toy(tmp_path, jobs=1, workers=True, quiet=True)
    assert shown[0] == 0
    assert shown[-1] == 5
    assert 1 in shown, "one of three graphs of the first shard"
    assert shown == sorted(shown)


def test_a_worker_keeps_to_its_memory(tmp_path: Path) -> None:
    """A record of 600 MB fails under a limit of 512 MiB; the same build completes without a limit."""
    write_raw(tmp_path / "raw", 12, orders={4: "memory=600_000_000"})
    with raises(OutOfResources, naming="graphs 3"):
        build_toy(tmp_path, jobs=1, workers=True, memory=2**29)
    assert build_toy(tmp_path, jobs=1, workers=True).card.counts["graphs"] == 12


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"memory": "much"}, "much"),
        ({"memory": "5MB"}, "5MB"),
        ({"memory": 2**30, "engine": "dask"}, "Dask"),
    ],
)
def test_an_unenforceable_memory_limit_is_refused(options: dict[str, Any], value: str) -> None:
    with raises(UsageError, naming=value):
        ExecutionOptions.from_arguments("toy", options)


def test_a_worker_that_dies_once_costs_only_its_unit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_raw(tmp_path / "raw", 12, orders={7: f"die-once={tmp_path / 'died'}"})
    build = build_toy(tmp_path)
    assert (tmp_path / "died").exists()
    assert "a worker process died" in capfd.readouterr().err
    assert build.card.counts == {"graphs": 12, "nodes": 78, "edges": 156}


@pytest.mark.parametrize(("units", "jobs", "threads"), [(2, 2, 1), (2, 5, 2)])
def test_workers_share_the_cores_and_have_no_torch(
    tmp_path: Path, units: int, jobs: int, threads: int
) -> None:
    write_raw(tmp_path / "raw", 3 * units, orders={0: f"no-torch threads={threads}"})
    assert build_toy(tmp_path, jobs=jobs).card.counts["graphs"] == 3 * units


def test_empty_data_and_repeated_keys_are_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/part0.txt").write_text("")
    with pytest.raises(DamagedInput):
        build_toy(tmp_path, jobs=1)
    (tmp_path / "raw/part0.txt").write_text("a 3\nb 3\na 3\n")
    with raises(DamagedInput, naming="'a'"):
        build_toy(tmp_path, jobs=1)


def test_a_missing_current_folder_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_raw(tmp_path / "raw", 2)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError):
        build_toy(tmp_path)


def test_prepare_runs_once_over_an_interrupted_build(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 12, orders={4: f"die-once={tmp_path / 'died'}", 8: "fail=stop"})
    for _ in range(2):
        with pytest.raises(DamagedInput):
            build_toy(tmp_path, jobs=1)
    lines = (tmp_path / "log").read_text().split()
    assert lines.count("prepare") == 1
    # Unit 2 fails each time; the others are built once, but for the one whose worker died.
    assert [built_units(tmp_path).count(unit) for unit in (0, 1)] in ([1, 2], [2, 2])


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 30, orders=dict.fromkeys(range(30), "sleep=7200"))
    child = crash_points.start_build(tmp_path)
    wait_until(lambda: len(built_units(tmp_path)) == 2)
    child.kill()
    child.communicate(timeout=600)
    wait_until(lambda: not _group(child.pid))


def test_builds_run_from_unguarded_scripts_and_stdin(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 4)
    code = (
        "import sys\nfrom pathlib import Path\nfrom support.builds.toy_pipeline import build_toy\n"
        "print('begin')\n"
        "print(build_toy(Path(sys.argv[1]), home=Path(sys.argv[2])).card.counts['graphs'])\n"
    )
    (tmp_path / "script.py").write_text(code)
    environment = crash_points.environment(tmp_path / "bootstrap")
    for home, words, typed in (
        ("home1", [str(tmp_path / "script.py")], None),
        ("home2", ["-i", "-"], code),
    ):
        done = subprocess.run(
            [sys.executable, *words, str(tmp_path), str(tmp_path / home)], check=False, env=environment,
            capture_output=True, text=True, timeout=600, input=typed,
        )  # fmt: skip
        assert done.stdout == "begin\n4\n", done.stderr


def _group(pgid: int) -> list[int]:
    """Processes of a group that still run (zombies do not)."""
    pids = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == pgid and process.info["status"] != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids
