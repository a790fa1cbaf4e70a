"""Add columns to a finished build: each shard through an encoding into a file next to it, the card last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from kmip_data.builds.columns import ColumnsCard, columns_key, columns_schema, read_columns, shards_digest
from kmip_data.builds.home import COLUMNS, Build, BuildArguments, BuildOptions
from kmip_data.errors import DamagedInput, UsageError, writing
from kmip_data.files import changes as files
from kmip_data.files.changes import build_lock
from kmip_data.format import writer
from kmip_data.format.build_files import protect
from kmip_data.format.card import CARD_NAME, FileEntry, ShardEntry
from kmip_data.format.reader import Shard, check_edges
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.encoding import Encoding, Graphs
from kmip_data.pipelines.engine.finish import versions_of_bytes
from kmip_data.pipelines.engine.journal import EXECUTOR_FILES, JOURNAL, WORK, Journal, UnitResult
from kmip_data.pipelines.engine.pool import count_jobs
from kmip_data.pipelines.engine.run import open_executor, run_units
from kmip_data.pipelines.engine.workers import StopRequestedError, explained
from kmip_data.runtime import signals, threads
from kmip_data.runtime.memory import require_memory
from kmip_data.runtime.progress import say


@dataclass(frozen=True)
class EncodeTask:
    """One shard and one encoding, picklable."""

    encoding: Encoding
    key: str
    build: Path
    dataset: str
    shard: ShardEntry
    stop: Path  #: a file; the worker stops when it appears
    threads: int

    @property
    def name(self) -> str:
        """Name of the unit in the journal: what the bytes of the file are made of."""
        return f"{self.encoding.name} of {self.shard.file}, key {self.key}"

    @property
    def file(self) -> str:
        """The file that is written, relative to the build folder."""
        return f"{COLUMNS}/{self.encoding.name}/{Path(self.shard.file).name}"


def encode_build(
    build: Build, encodings: Sequence[Encoding], *, again: bool = False, **options: Unpack[BuildArguments]
) -> list[ColumnsCard]:
    """Add missing columns to a build, and return the cards of all requested ones.

    The shards are never touched. An interrupted run resumes with the files it has finished, and the bytes
    depend on nothing but the shards and the encodings, which
    :func:`~kmip_data.graphs.encodings.parse_encoding` makes from names. ``again`` computes those that are
    there, too; of the ``options`` ``jobs``, ``engine``, ``scheduler`` and ``quiet`` count.

    Raises ``UsageError`` where the build has no edges, or an option is wrong; ``DamagedInput`` where a shard
    is damaged; ``OutOfResources`` where disk or memory ran out: the next run resumes.
    """
    chosen = BuildOptions.of(build.card.dataset, options)
    if build.card.schema_.edges == "none":
        raise UsageError(f"{build.path} has no edges, from which encodings are computed.")
    encodings = list(dict.fromkeys(encodings))
    if again or not all(_is_there(build, encoding) for encoding in encodings):
        with signals.terminable(), build_lock(build.path, quiet=chosen.quiet):
            build.read_again()
            _add(build, [one for one in encodings if again or not _is_there(build, one)], chosen)
    return [read_columns(build, encoding.name) for encoding in encodings]


def _add(build: Build, missing: Sequence[Encoding], options: BuildOptions) -> None:
    """Compute the files, then write the cards; the caller holds the lock."""
    jobs, counts = count_jobs(options.jobs), build.card.counts
    for encoding in missing if counts["graphs"] == 1 else ():  # before any work
        what = f"{encoding.name} of {counts['nodes']:,} nodes"
        require_memory(counts["nodes"] * encoding.bytes_a_node, what, "free some, or add another encoding")
    folders = [build.path / COLUMNS / encoding.name for encoding in missing]
    work = build.path / COLUMNS / WORK
    with writing(work):
        files.refuse_links(build.path)
        files.make_folder(work, root=build.path)
        for folder in folders:
            files.make_folder(folder, root=build.path)
            files.remove_file(folder / CARD_NAME, root=build.path)
            files.remove_partials(folder, root=build.path)
    executor = open_executor(options, work, jobs=jobs, needs=[build.path])
    about: Any = {"name": f"encode {build.card.dataset}", "quiet": options.quiet}
    with Journal(work / JOURNAL, build.card.key) as journal, executor:
        tasks = _tasks(build, missing, executor.stop, jobs)
        units = run_units(executor, encode_shard_columns, tasks, journal, build.path, jobs=jobs, **about)
    count = len(build.card.shards)
    for position, encoding in enumerate(missing):
        _write_card(build, encoding, units[position * count : (position + 1) * count])
        say(f"added {encoding.name} to {build.path}", quiet=options.quiet)
    for folder in (work, *folders):
        files.remove_partials(folder, root=build.path)
    files.remove_files(build.path, [f"{COLUMNS}/{WORK}/{name}" for name in (*EXECUTOR_FILES, JOURNAL)])


def _tasks(build: Build, encodings: Sequence[Encoding], stop: Path, jobs: int) -> list[EncodeTask]:
    """Return the tasks of all shards for one encoding after the other."""
    card = build.card
    count = max(1, jobs // max(1, len(card.shards) * len(encodings)))
    return [
        EncodeTask(encoding, columns_key(encoding, card), build.path, card.dataset, shard, stop, count)
        for encoding in encodings
        for shard in card.shards
    ]


def _is_there(build: Build, encoding: Encoding) -> bool:
    """True if a card of these shards and this version is there, and its files in their sizes."""
    folder = build.path / COLUMNS / encoding.name
    try:
        card = read_columns(build, encoding.name)
    except (DamagedInput, UsageError):
        return False
    paths = [(folder / entry.file, entry.bytes) for entry in card.files]
    whole = all(path.is_file() and path.stat().st_size == size for path, size in paths)
    return whole and card.key == columns_key(encoding, build.card) and len(paths) == len(build.card.shards)


def _write_card(build: Build, encoding: Encoding, units: Sequence[UnitResult]) -> None:
    folder = build.path / COLUMNS / encoding.name
    entries = [FileEntry(file=Path(unit.file).name, **unit.facts) for unit in units]
    card = ColumnsCard(
        name=encoding.name,
        definition=encoding.definition,
        encoding_version=encoding.version,
        key=columns_key(encoding, build.card),
        build_key=build.card.key,
        shards_digest=shards_digest(build.card),
        data_schema=json.loads(columns_schema(encoding, build.card.schema_).to_json()),
        files=entries,
        versions={**versions_of_bytes(), "scipy": metadata.version("scipy")},
    )
    for entry in entries:
        protect(folder / entry.file)
    files.write_file(folder / CARD_NAME, card.to_json().encode(), root=build.path)


def _edges(shard: Shard) -> NDArray[Any]:
    """Edges of a shard with nodes numbered inside each graph, (2, E)."""
    if shard.schema.edges == "index":
        return shard.read(EDGE_INDEX, 0, shard.edges)
    table = shard.read(NEIGHBOR, 0, shard.nodes)
    rows = np.arange(shard.nodes) - np.repeat(shard.node_ptr[:-1], np.diff(shard.node_ptr))
    return np.stack([table.reshape(-1), np.repeat(rows, table.shape[1])])


def encode_shard_columns(task: EncodeTask) -> UnitResult:
    """Compute one encoding for the graphs of one shard and write the file (runs in a worker).

    BLAS has one thread here, whatever the worker was started with: its sums depend on their number. Errors
    are those of :func:`~kmip_data.pipelines.engine.workers.build_unit`.
    """
    from threadpoolctl import threadpool_limits

    threads.set_num_threads(task.threads)
    with explained(task.dataset, f"{task.encoding.name} of {task.shard.file}"), threadpool_limits(1):
        shard = Shard(task.build / task.shard.file)
        check_edges(shard)
        graphs = Graphs(shard.node_ptr, shard.edge_ptr, _edges(shard), shard.keys)

        def check() -> None:
            if task.stop.exists():
                raise StopRequestedError

        arrays = task.encoding.compute(graphs, check)
        schema = columns_schema(task.encoding, shard.schema)
        levels = {column.key: column.level for column in schema.columns}

        def records() -> Iterator[GraphRecord]:
            for g, key in enumerate(shard.keys):
                a, b = shard.node_ptr[g], shard.node_ptr[g + 1]
                rows = {n: array[g] if levels[n] == "graph" else array[a:b] for n, array in arrays.items()}
                yield GraphRecord(key=key, num_nodes=int(b - a), columns=rows)

        how: Any = {"dataset": task.dataset, "build_key": task.key}
        facts = writer.write_shard(task.build / task.file, records(), schema, root=task.build, **how)
    return UnitResult(name=task.name, file=task.file, statistics={}, **facts)
