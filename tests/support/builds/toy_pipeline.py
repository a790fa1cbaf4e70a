"""A small dataset with a pipeline of its own, to test the engine without any real one.

The raw data are text files ``part<i>.txt`` with one line a graph, ``key nodes``; every array is a
function of the key. Behaviour for tests (slow, failing, dying records) is asked for in the lines.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from support.builds.records import column_of

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, KmipDataError
from kmip_data.format.card import Receipt
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Pipeline,
    Prepared,
    RawCopy,
    RawNeededError,
    RecordTable,
    Split,
    Unit,
    needs_no_worker,
)
from kmip_data.pipelines.engine import resumable_build
from kmip_data.pipelines.parameters import BaseSplitParams, BuildParams
from kmip_data.runtime import parallel

CLASSES = 3


class ToyParams(BuildParams):
    """Parameters of the toy records."""

    k: int = Field(default=2, ge=1, le=16, description="neighbours a node")
    per_unit: int = Field(default=3, ge=1, description="graphs a shard")
    edges: Literal["neighbor", "index"] = Field(default="neighbor", description="edge layout")
    colors: tuple[str, ...] = Field(default=(), description="a parameter that is a list")


class ToySplitParams(BaseSplitParams):
    """Parameters of the toy split."""

    fold: int = Field(default=0, ge=0, le=9, description="which tenth is the test part")
    level: Literal["graph", "node"] = "graph"
    from_raw: bool = False


class ToyPipeline(Pipeline[ToyParams, ToySplitParams]):
    """Graphs on a ring whose features follow from their key."""

    version = 1
    Params: ClassVar[type[ToyParams]] = ToyParams
    SplitParams: ClassVar[type[ToySplitParams]] = ToySplitParams

    def schema(self, params: ToyParams) -> Schema:
        return Schema(
            columns=(
                column_of("node/x", shape=(2,)),
                column_of("node/y", "uint8", "int64", num_classes=CLASSES),
            ),
            edges=params.edges,
            k=params.k if params.edges == "neighbor" else None,
            max_nodes=self.manifest.max_nodes,
        )

    def write_sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        write_raw(folder, limit or 20)

    def prepare(self, raw: RawCopy, params: ToyParams, workdir: Path) -> Prepared:
        names = []
        for member in sorted(raw.members):
            for line in (raw.path / member).read_text().splitlines():
                (workdir / f"{len(names):05d}").write_text(line)
                names.append(line.split()[0])
        log = raw.path.parent / "log"
        with log.open("a") as file:
            file.write("prepare\n")
        return Prepared(workdir, {"graphs": len(names), "log": str(log)})

    def units(self, prepared: Prepared, params: ToyParams) -> list[Unit]:
        total = min(prepared.facts["graphs"], params.limit or prepared.facts["graphs"])
        starts = range(0, total, params.per_unit)
        return [
            Unit(i, f"graphs {a}", {"rows": list(range(a, min(a + params.per_unit, total)))})
            for i, a in enumerate(starts)
        ]

    def records(self, prepared: Prepared, unit: Unit, params: ToyParams) -> Iterator[GraphRecord]:
        with Path(prepared.facts["log"]).open("a") as file:
            file.write(f"{unit.index}\n")
        for i in unit.selection["rows"]:
            key, nodes, *orders = (prepared.path / f"{i:05d}").read_text().split()
            for order in orders:
                _obey(order)
            yield toy_record(key, int(nodes), params)

    def split(self, records: RecordTable, params: ToySplitParams, raw_folder: Path | None) -> Split:
        if params.from_raw and raw_folder is None:
            raise RawNeededError("this rule needs the raw files")
        name = f"{params.level}-fold{params.fold}" + "-raw" * params.from_raw
        if params.level == "node":
            code = np.array([0, 1, 2, 255], np.uint8)[np.arange(4) % 4]
            return Split(name, "node", {}, part_codes=code)
        count = len(records.keys)
        turn = {"test": params.fold, "val": (params.fold + 1) % 10}
        parts = {part: [i for i in range(count) if i % 10 == digit] for part, digit in turn.items()}
        used = {i for rows in parts.values() for i in rows}
        parts["train"] = [i for i in range(count) if i not in used]
        return Split(name, "tenths", {"tenths": 10}, parts, note="every tenth graph")

    def folder_name_pieces(self, params: ToyParams) -> list[str]:
        return [f"k{params.k}"]


class OneUnitPipeline(ToyPipeline):
    """The same with all graphs in one shard: small raw files are built without a worker process."""

    one_unit = True
    max_bytes_in_process = 4 * 2**20

    def units(self, prepared: Prepared, params: ToyParams) -> list[Unit]:
        count = min(prepared.facts["graphs"], params.limit or prepared.facts["graphs"])
        return [Unit(0, f"graphs 0 to {count}", {"rows": list(range(count))})]


class InProcessPipeline(ToyPipeline):
    """The same, built without a worker process where no line asks for anything."""


def _is_small(pipeline: Pipeline[Any, Any], raw: RawCopy) -> bool:
    if not isinstance(pipeline, InProcessPipeline):
        return needs_no_worker(pipeline, raw)
    texts = [(raw.path / name).read_text() for name in raw.members]
    return all(len(line.split()) == 2 for text in texts for line in text.splitlines())


resumable_build.needs_no_worker = _is_small


def _obey(order: str) -> None:
    word, _, value = order.partition("=")
    if word == "sleep":
        time.sleep(float(value))
    elif word == "hold":  # until the file is there, or the build is stopped
        while not Path(value).exists() and not [*Path(value).parent.glob("built/*/work/stop")]:
            time.sleep(0.01)
    elif word == "fail":
        raise ValueError(value)
    elif word == "damaged":
        raise DamagedInput("The toy is damaged.", found=value)
    elif word == "memory":
        np.ones(int(value or 2**60), np.uint8)
    elif word == "die" or (word == "die-once" and not Path(value).exists()):
        if value:
            Path(value).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "no-torch" and "torch" in sys.modules:
        raise ImportError("torch is loaded in a worker")
    elif word == "threads" and (parallel.num_threads(), os.environ["OMP_NUM_THREADS"]) != (
        int(value),
        "1",
    ):
        raise RuntimeError("another number of threads")


def toy_record(key: str, nodes: int, params: ToyParams) -> GraphRecord:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    rng = np.random.Generator(np.random.PCG64(seed))
    columns: dict[str, Any] = {
        "node/x": rng.standard_normal((nodes, 2)).astype(np.float32),
        "node/y": rng.integers(0, CLASSES, nodes).astype(np.uint8),
    }
    table = (np.arange(nodes)[:, None] + np.arange(1, params.k + 1)) % max(1, nodes)
    if params.edges == "neighbor":
        return GraphRecord(
            key=key, num_nodes=nodes, columns=columns, neighbor=table.astype(np.uint16)
        )
    index = np.stack([table.reshape(-1), np.repeat(np.arange(nodes), params.k)]).astype(np.uint16)
    return GraphRecord(key=key, num_nodes=nodes, columns=columns, edge_index=index)


def toy_manifest() -> Manifest:
    values: dict[str, Any] = {
        "name": "toy", "registered_name": "toy", "pipeline": "toy",
        "title": "Toy rings", "summary": "Rings for tests.",
        "task": "node classification", "homepage": "https://example.com", "citation": "@misc{toy}",
        "license": {"name": "CC0", "url": "https://example.com", "notice": "Free."},
        "class_names": ("red", "green", "blue"), "sources": (), "expected": {"graphs": 20},
        "content": {"anchor": "part0.txt", "members": (), "max_total_bytes": 1_000_000},
        "max_nodes": 1000, "dataset_class": "Toy", "notes": ("A toy.",),
    }  # fmt: skip
    return Manifest.model_validate(values)


def toy_pipeline() -> ToyPipeline:
    """The pipeline of :func:`toy_manifest`."""
    return ToyPipeline(toy_manifest())


def write_raw(
    folder: Path, graphs: int, *, orders: dict[int, str] | None = None, nodes: int = 0
) -> None:
    """Write ``graphs`` lines into two raw files; ``orders`` adds behaviour to some of them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"toy/{i:04d} {nodes or 5 + i % 4} {(orders or {}).get(i, '')}".strip()
        for i in range(graphs)
    ]
    half = (graphs + 1) // 2
    for i, part in enumerate((lines[:half], lines[half:])):
        (folder / f"part{i}.txt").write_text("".join(f"{line}\n" for line in part))


def raw_folder(folder: Path, *, sample: bool = False) -> RawCopy:
    members = {name: digest for name, digest in digests(folder).items() if name.startswith("part")}
    receipts = (
        Receipt(name=name, origin="test", sha256=digest, bytes=(folder / name).stat().st_size)
        for name, digest in members.items()
    )
    return RawCopy(folder, members, tuple(receipts), sample)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a build folder by relative path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def built_units(folder: Path) -> list[int]:
    """Units in the order in which they were begun, over all runs, for raw files in ``folder/raw``."""
    lines = (folder / "log").read_text().split() if (folder / "log").exists() else []
    return [int(line) for line in lines if line != "prepare"]


def build_toy(
    folder: Path,
    *,
    jobs: int = 2,
    home: Path | None = None,
    one_unit: bool = False,
    workers: bool = False,
    **options: Any,
) -> Build:
    """Build the toy dataset from ``folder/raw``; one job without orders runs in this process."""
    from kmip_data.pipelines.build import build_from_raw
    from kmip_data.pipelines.engine.plan import BuildPlan

    pipeline = OneUnitPipeline(toy_manifest()) if one_unit else toy_pipeline()
    if jobs == 1 and not one_unit and not workers:
        pipeline = InProcessPipeline(toy_manifest())
    params = ToyParams(**options.pop("parameters", {}))
    split = ToySplitParams(**options.pop("split_parameters", {}))
    raw = raw_folder(folder / "raw", sample=options.pop("sample", False))
    plan = BuildPlan(
        pipeline, params, raw, Home(home or folder), ExecutionOptions(jobs=jobs, **options)
    )
    return build_from_raw(plan, split)


def main(**options: Any) -> None:
    """One build of ``FOLDER JOBS`` (the arguments of the process), with the exit codes of the command."""
    try:
        print(build_toy(Path(sys.argv[1]), jobs=int(sys.argv[2]), workers=True, **options).path)  # noqa: T201
    except KmipDataError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
