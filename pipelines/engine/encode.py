"""Add encodings to a finished build as columns: one file per shard, then the column's card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Unpack

import numpy as np

from kmip_data.arrays import Array
from kmip_data.builds.added_columns import (
    AddedColumnCard,
    added_column_key,
    added_column_schema,
    read_added_column_card,
    shards_digest,
)
from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.files_of_build import WORK_FOLDER
from kmip_data.builds.home import COLUMNS_FOLDER, Build
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.format import writer
from kmip_data.format.build_files import make_read_only
from kmip_data.format.card import CARD_NAME, FileEntry, ShardEntry
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.reader import Shard, check_shard_edges
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Schema
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding
from kmip_data.pipelines.engine.plan import versions_affecting_bytes
from kmip_data.pipelines.engine.pool import StopRequestedError, convert_unit_errors, count_jobs
from kmip_data.pipelines.engine.resumable_build import executor_for, run_units
from kmip_data.pipelines.engine.unfinished_builds import UNITS_STEP, StepResults, UnitResult
from kmip_data.runtime import parallel, signals
from kmip_data.runtime.memory import require_memory
from kmip_data.runtime.progress import print_status


@dataclass(frozen=True)
class EncodeTask:
    """Picklable task: compute one encoding for one shard."""

    encoding: Encoding
    key: str  #: key of the column (:func:`~kmip_data.builds.added_columns.added_column_key`)
    build: Path  #: build folder
    dataset: str
    shard: ShardEntry
    stop: Path  #: file whose existence stops the worker
    threads: int  #: threads of compiled kernels

    @property
    def name(self) -> str:
        """Identity of the file's content: encoding, shard and key."""
        return f"{self.encoding.name} of {self.shard.file}, key {self.key}"

    @property
    def file(self) -> str:
        """File to write, relative to the build folder."""
        return f"{COLUMNS_FOLDER}/{self.encoding.name}/{Path(self.shard.file).name}"

    @property
    def step(self) -> str:
        """Name of the step that records the result."""
        return f"{self.encoding.name}-{Path(self.shard.file).stem}"

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return self.shard.graphs


def encode_build(
    build: Build,
    encodings: Sequence[Encoding],
    *,
    recompute: bool = False,
    **options: Unpack[BuildArguments],
) -> list[AddedColumnCard]:
    """Add the missing encodings to a build; return the cards of all requested ones.

    Shards are never changed. The bytes depend only on shards and encodings, which
    :func:`~kmip_data.graphs.encoding.parse_encoding` makes from names. An interrupted run resumes
    after its finished files. ``recompute`` also replaces existing columns. Only the options
    ``jobs``, ``engine``, ``scheduler`` and ``quiet`` have an effect.

    Raises ``UsageError`` if the build has no edges or an option is wrong; ``DamagedInput`` if a
    shard is damaged; ``OutOfResources`` if disk or memory runs out (the next run resumes).
    """
    execution = ExecutionOptions.from_arguments(build.card.dataset, options)
    if build.card.schema_.edges == "none":
        raise UsageError(f"{build.path} has no edges, from which encodings are computed.")
    encodings = list(dict.fromkeys(encodings))
    # Take the lock only if there is work: missing columns, or temporary files that a crash left.
    unfinished = (build.path / COLUMNS_FOLDER / WORK_FOLDER).exists()
    if recompute or unfinished or _missing_encodings(build, encodings):
        with signals.exit_on_signals(), folder_lock(build.path, quiet=execution.quiet):
            build.reread_card()
            _encode_and_write_cards(
                build, encodings if recompute else _missing_encodings(build, encodings), execution
            )
    return [read_added_column_card(build, encoding.name) for encoding in encodings]


def _encode_and_write_cards(
    build: Build, missing: Sequence[Encoding], options: ExecutionOptions
) -> None:
    """Compute the files, then write the cards; the caller holds the lock."""
    jobs = count_jobs(options.jobs)
    counts = build.card.counts
    # A single large graph must fit in memory at once.
    if counts["graphs"] == 1:
        for encoding in missing:
            require_memory(
                counts["nodes"] * encoding.bytes_per_node,
                f"{encoding.name} of {counts['nodes']:,} nodes",
                "free some memory, or add another encoding",
            )

    folders = [build.path / COLUMNS_FOLDER / encoding.name for encoding in missing]
    work = build.path / COLUMNS_FOLDER / WORK_FOLDER
    with convert_write_errors(work):
        atomic_writes.refuse_links(build.path)
        atomic_writes.refuse_occupied_folder(
            build.path, atomic_writes.build_marker_content(build.card.key), build.remedy
        )
        atomic_writes.make_folder(work, root=build.path)
        for folder in folders:
            atomic_writes.make_folder(folder, root=build.path)
    try:
        with executor_for(options, work, jobs=jobs, needs=[build.path]) as executor:
            tasks = _list_tasks(build, missing, executor.stop, jobs)
            StepResults(work).finish(UNITS_STEP, {"files": [task.file for task in tasks]})
            units = run_units(
                executor,
                encode_shard_columns,
                tasks,
                StepResults(work),
                build.path,
                jobs=jobs,
                name=f"encode {build.card.dataset}",
                quiet=options.quiet,
            )
    finally:
        # Workers that died or were killed while writing leave such files.
        for folder in folders:
            atomic_writes.remove_partials(folder, root=build.path)

    # Results are in the order of the tasks: all shards of one encoding, then of the next.
    num_shards = len(build.card.shards)
    for position, encoding in enumerate(missing):
        first = position * num_shards
        _write_columns_card(build, encoding, units[first : first + num_shards])
        print_status(f"added {encoding.name} to {build.path}", quiet=options.quiet)
    atomic_writes.remove_tree(work, root=build.path)


def _list_tasks(
    build: Build,
    encodings: Sequence[Encoding],
    stop: Path,
    jobs: int,
) -> list[EncodeTask]:
    """Return the tasks of all shards, one encoding after the other."""
    card = build.card
    # Surplus jobs become threads inside a task.
    threads = max(1, jobs // max(1, len(card.shards) * len(encodings)))
    tasks = []
    for encoding in encodings:
        key = added_column_key(encoding, card)
        for shard in card.shards:
            task = EncodeTask(
                encoding=encoding,
                key=key,
                build=build.path,
                dataset=card.dataset,
                shard=shard,
                stop=stop,
                threads=threads,
            )
            tasks.append(task)
    return tasks


def _missing_encodings(build: Build, encodings: Sequence[Encoding]) -> list[Encoding]:
    return [encoding for encoding in encodings if not _is_finished(build, encoding)]


def _is_finished(build: Build, encoding: Encoding) -> bool:
    """True if the column's card has the current key, and its files have the recorded sizes."""
    folder = build.path / COLUMNS_FOLDER / encoding.name
    try:
        card = read_added_column_card(build, encoding.name)
    except (DamagedInput, UsageError):
        return False
    for name, member in card.digests_of_file.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != member.bytes:
            return False
    return card.key == added_column_key(encoding, build.card)


def _write_columns_card(build: Build, encoding: Encoding, units: Sequence[UnitResult]) -> None:
    folder = build.path / COLUMNS_FOLDER / encoding.name
    entries = [FileEntry(file=Path(unit.file).name, **unit.card_fields) for unit in units]
    card = AddedColumnCard(
        name=encoding.name,
        definition=encoding.definition,
        encoding_version=encoding.version,
        key=added_column_key(encoding, build.card),
        build_key=build.card.key,
        shards_digest=shards_digest(build.card),
        data_schema=json.loads(added_column_schema(encoding, build.card.schema_).to_json()),
        files=entries,
        versions={**versions_affecting_bytes(), "scipy": metadata.version("scipy")},
        note=encoding.note,
    )
    for file in card.digests:
        make_read_only(folder / file)
    atomic_writes.write_file(folder / CARD_NAME, card.to_json().encode(), root=build.path)


def _edges_of_shard(shard: Shard) -> Array:
    """Return the edges of a shard, (2, E), with nodes numbered inside each graph."""
    if shard.schema.edges == "index":
        return shard.read(EDGE_INDEX, 0, shard.edges)
    # Row i of a graph's neighbor table has the sources of node i.
    table = shard.read(NEIGHBOR, 0, shard.nodes)
    rows = np.concatenate([np.arange(count) for count in np.diff(shard.node_ptr)])
    return np.stack([table.reshape(-1), np.repeat(rows, table.shape[1])])


def _stored_edges(schema: Schema, edge_index: Array) -> dict[str, Array]:
    """Return the edges of one graph, (2, E), as ``schema`` stores them."""
    if schema.edges == "index":
        return {"edge_index": edge_index}
    if schema.edges == "neighbor":  # edges are grouped by target
        return {"neighbor": edge_index[0].reshape(-1, schema.k or 1)}
    return {}


def encode_shard_columns(task: EncodeTask) -> UnitResult:
    """Compute one encoding for the graphs of one shard and write the file, in a worker.

    BLAS always has one thread, because its sums depend on the number of threads. Raises the same
    errors as :func:`~kmip_data.pipelines.engine.pool.build_unit`.
    """
    from threadpoolctl import threadpool_limits

    parallel.set_num_threads(task.threads)
    with (
        convert_unit_errors(task.dataset, f"{task.encoding.name} of {task.shard.file}"),
        threadpool_limits(1),
    ):
        shard = Shard(task.build / task.shard.file, entry=task.shard)
        check_shard_edges(shard)
        graphs = ConcatenatedGraphs(
            shard.node_ptr,
            shard.edge_ptr,
            _edges_of_shard(shard),
            shard.keys,
        )

        def check_stop() -> None:
            if task.stop.exists():
                raise StopRequestedError

        arrays = task.encoding.compute(graphs, check_stop)
        schema = added_column_schema(task.encoding, shard.schema)

        def records() -> Iterator[GraphRecord]:
            for g, key in enumerate(shard.keys):
                nodes = slice(shard.node_ptr[g], shard.node_ptr[g + 1])
                edges = slice(shard.edge_ptr[g], shard.edge_ptr[g + 1])
                rows: dict[str, int | slice] = {"graph": g, "node": nodes, "edge": edges}
                columns = {}
                for column in schema.columns:
                    columns[column.key] = arrays[column.key][rows[column.level]]
                yield GraphRecord(
                    key=key,
                    num_nodes=int(nodes.stop - nodes.start),
                    columns=columns,
                    **_stored_edges(schema, graphs.edge_index[:, edges]),
                )

        card_fields, _ = writer.write_shard(
            task.build / task.file,
            records(),
            schema,
            root=task.build,
            dataset=task.dataset,
            build_key=task.key,
        )
    return UnitResult(name=task.name, file=task.file, statistics={}, **card_fields)
