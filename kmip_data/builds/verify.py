"""Verification of every byte of a build: card, shards, values, splits and added columns."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

import numpy as np

from kmip_data.builds.added_columns import (
    AddedColumnCard,
    added_column_key,
    added_column_schema,
    find_encoding,
    read_added_column_card,
)
from kmip_data.builds.files_of_build import foreign_file_notes
from kmip_data.builds.home import COLUMNS_FOLDER, Build, added_column_names
from kmip_data.columns.column_roles import column_roles_on_card
from kmip_data.errors import Command, DamagedInput, UsageError
from kmip_data.files.atomic_writes import build_marker_content, marker_content
from kmip_data.files.folder_marker import MARKER_NAME
from kmip_data.files.small_files import (
    is_behind_link,
    obstacle_problem,
    read_small_file,
    sha256_file,
)
from kmip_data.format.build_files import CROISSANT_NAME, metadata_files
from kmip_data.format.card import CARD_NAME, Card, FileDigests, FileEntry, SplitEntry, read_card
from kmip_data.format.reader import Shard, check_column, check_values
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.split_files import (
    PART_CODES,
    SplitFile,
    graph_keys_digest,
    node_digests,
    read_split,
)
from kmip_data.runtime.parallel import run_in_ranges
from kmip_data.strict_model import read_shipped, shipped_datasets, shipped_names


@dataclass(frozen=True)
class Problem:
    """Problem of one file of a build."""

    file: str  #: path relative to the build
    message: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        details = []
        if self.expected:
            details.append(f"expected {self.expected}")
        if self.found:
            details.append(f"found {self.found}")
        text = f"{self.file}: {self.message}"
        return f"{text} ({', '.join(details)})" if details else text


def _file_problems(path: Path, entry: FileEntry | SplitEntry) -> Iterator[Problem]:
    files: Mapping[str, FileDigests | SplitEntry]
    files = entry.files if isinstance(entry, FileEntry) else {entry.file: entry}
    for name, member in files.items():
        if is_behind_link(path, name):
            yield Problem(name, obstacle_problem(path, name))
            continue
        if not (path / name).is_file():  # missing, or a device or pipe, which may be endless
            yield Problem(name, "is missing")
            continue
        try:
            digest, size = sha256_file(path / name)
        except DamagedInput as error:
            yield _problem_from_error(name, error)
            continue
        if digest != member.sha256 or size != getattr(member, "bytes", size):
            yield Problem(
                name,
                "has different bytes",
                f"SHA-256 {member.sha256}",
                f"{digest}, {size:,} bytes",
            )


def _obstacle_problems(path: Path, *names: str) -> Iterator[Problem]:
    """Yield a problem for each link, folder or pipe in the place of a file."""
    for name in names:
        if message := obstacle_problem(path, name):
            yield Problem(name, message)


def _property_problems(file: str, **properties: tuple[object, object]) -> Iterator[Problem]:
    """Yield a problem for each property whose expected and actual values differ."""
    for name, (expected, actual) in properties.items():
        if expected != actual:
            message = f"has a different {name.replace('_', ' ')}"
            yield Problem(file, message, str(expected), str(actual))


def _schema_problems(file: str, expected: Schema, actual: Schema) -> Iterator[Problem]:
    actual_values = asdict(actual)
    names = [name for name, value in asdict(expected).items() if actual_values[name] != value]
    if names:
        yield Problem(file, "has a different schema", found=f"different {', '.join(names)}")


def _problem_from_error(file: str, error: DamagedInput) -> Problem:
    return Problem(file, error.problem or error.message, found=error.found or "")


@dataclass
class VerifyReport:
    """Result of :func:`verify_build`.

    ``checked`` counts ``shards``, ``splits``, ``graphs``, ``nodes``, ``edges``, ``bytes`` and
    ``columns``.
    """

    path: Path
    problems: list[Problem] = field(default_factory=list)
    broken_shards: list[str] = field(default_factory=list)  #: files to rebuild
    checked: dict[str, int] = field(default_factory=dict)
    #: page and metadata that differ from those that this version writes for the card
    outdated: list[str] = field(default_factory=list)
    #: notes on outdated files, foreign files, and features that are not finite
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there is no problem; notes are allowed."""
        return not self.problems


def verify_build(path: str | os.PathLike[str]) -> VerifyReport:
    """Check everything in a build folder that its card lists.

    The card must be unchanged; shards and splits must exist and match its digests; every shard must
    be well-formed, belong to the build, and keep the bounds of the schema; keys must be unique;
    splits must be disjoint and in range; counts must match. Files that the card does not list become
    notes. Memory is bounded by one block of values per thread, the keys, and the split positions.

    Raises ``UsageError`` if ``path`` has no card (it is not a finished build), or if a newer kmip-data
    wrote it.
    """
    path = Path(path).absolute()
    report = VerifyReport(path)
    try:
        card = read_card(path)
        column_roles_on_card(card.statistics)
    except DamagedInput as error:
        report.problems.append(_problem_from_error(CARD_NAME, error))
        return report

    # 1. Card and shards, on all threads.
    report.problems += _card_problems(card)
    report.problems += _obstacle_problems(path, MARKER_NAME, *metadata_files(card))
    content = marker_content(path)
    if content not in {None, build_marker_content(card.key)}:
        report.problems.append(
            Problem(
                MARKER_NAME,
                "belongs to another folder",
                build_marker_content(card.key),
                content or "",
            )
        )
    report.outdated += _outdated_files(path, card)
    faulty = {problem.file for problem in report.problems}
    for name in report.outdated:
        if name not in faulty:
            report.notes.append(f"{name} does not match the card; a repair rewrites it")
    report.notes += foreign_file_notes(path)
    shards = _check_shards(report, card, card.schema_)

    # 2. Keys and splits, which can be checked only if all shards are readable.
    all_readable = len(shards) == len(card.shards)
    keys = [key for shard in shards for key in shard.keys]
    if all_readable:
        report.problems += _problems_across_shards(card, shards, keys)
    for entry in card.splits.values():
        problems = list(_file_problems(path, entry))
        if all_readable and not problems:
            problems = list(_split_problems(path, entry, shards, keys))
        report.problems += problems
    report.checked["splits"] = len(card.splits)

    # 3. Added columns, one file per shard.
    columns = added_column_names(path)
    if columns:
        build = Build(path, card)
        report.problems += _column_problems(build, shards if all_readable else None)
        report.checked["columns"] = len(columns)
    if report.ok:
        report.notes += feature_problems(Build(path, card))
    return report


def feature_problems(build: Build, features: Container[str] = ("x", "edge_attr")) -> Iterator[str]:
    """Yield the first NaN or infinity of each feature in each shard, which a schema may allow."""
    for column in build.card.schema_.columns:
        if column.finite or column.attribute not in features:
            continue
        for entry in build.card.shards:
            shard = build.open_shard(entry.file, entry)
            try:
                check_column(shard, replace(column, finite=True))
            except DamagedInput as error:
                row = f"{entry.file}, {error.found}"
                yield f"{column.attribute} has NaN or infinite values: {row}"


def _outdated_files(path: Path, card: Card) -> Iterator[str]:
    """Yield the names of missing or different metadata files; their date is not compared."""
    with_picture = metadata_files(card, picture=True)
    for name, data in metadata_files(card).items():
        try:
            stored = b"" if is_behind_link(path, name) else read_small_file(path / name)
            if name == CROISSANT_NAME:
                metadata = json.loads(data)
                date = {"datePublished": metadata["datePublished"]}
                is_outdated = {**json.loads(stored), **date} != metadata
            else:
                is_outdated = stored not in {data, with_picture[name]}
        except (OSError, ValueError, TypeError, RecursionError):
            is_outdated = True
        if is_outdated:
            yield name


def _card_problems(card: Card) -> Iterator[Problem]:
    yield from _property_problems(CARD_NAME, format_version=(FORMAT_VERSION, card.format_version))
    files = len(card.splits) + sum(len(shard.files) for shard in card.shards)
    if len(card.digests) != files:
        yield Problem(CARD_NAME, "names a file twice")
    if card.splits and not card.default_split:
        yield Problem(CARD_NAME, "has no default split", ", ".join(card.splits), "none")


def _check_shards(report: VerifyReport, card: Card, schema: Schema) -> list[Shard]:
    """Check all shards on all threads, and return those that can be read."""
    results: list[tuple[Shard | None, list[Problem]]] = [(None, [])] * len(card.shards)

    def check(start: int, stop: int) -> None:
        for position in range(start, stop):
            results[position] = _check_shard(
                report.path,
                card.dataset,
                card.key,
                schema,
                card.shards[position],
            )

    run_in_ranges(check, len(card.shards))

    report.checked = {"shards": len(card.shards), "graphs": 0, "nodes": 0, "edges": 0, "bytes": 0}
    shards = []
    for entry, (shard, problems) in zip(card.shards, results, strict=True):
        report.checked["bytes"] += entry.bytes
        report.problems += problems
        if problems:
            report.broken_shards.append(entry.file)
        if shard is not None:
            shards.append(shard)
            report.checked["graphs"] += shard.graphs
            report.checked["nodes"] += shard.nodes
            report.checked["edges"] += shard.edges
    return shards


def _check_shard(
    path: Path,
    dataset: str,
    key: str,
    schema: Schema,
    entry: FileEntry,
) -> tuple[Shard | None, list[Problem]]:
    """Check a shard, or a file of an added column, against its build or column with that key."""
    # Different bytes explain all further problems.
    problems = list(_file_problems(path, entry))
    if problems:
        return None, problems
    try:
        shard = Shard(path / entry.file)
        problems += _schema_problems(entry.file, schema, shard.schema)
        problems += _property_problems(
            entry.file,
            dataset=(dataset, shard.dataset),
            build_key=(key, shard.build_key),
            number_of_graphs=(entry.graphs, shard.graphs),
            number_of_nodes=(entry.nodes, shard.nodes),
            number_of_edges=(entry.edges, shard.edges),
            # A single file would hide members of the same shard.
            list_of_files=(
                [Path(name).name for name in entry.files],
                [path.name for path in shard.files],
            ),
        )
        check_values(shard)
        shard.keys  # noqa: B018 -- reads and decodes the keys
    except DamagedInput as error:
        return None, [*problems, _problem_from_error(entry.file, error)]
    return shard, problems


def _problems_across_shards(
    card: Card, shards: Sequence[Shard], keys: Sequence[str]
) -> Iterator[Problem]:
    for unit in ("graphs", "nodes", "edges"):
        total = sum(getattr(shard, unit) for shard in shards)
        yield from _property_problems(
            CARD_NAME, **{f"number of {unit}": (total, card.counts[unit])}
        )
    if len(set(keys)) != len(keys):
        most_frequent = Counter(keys).most_common(1)[0][0]
        yield Problem("shards", "hold two records with the same key", found=repr(most_frequent))


def _split_problems(
    path: Path, entry: SplitEntry, shards: Sequence[Shard], keys: Sequence[str]
) -> Iterator[Problem]:
    nodes = sum(shard.nodes for shard in shards)
    try:
        split = read_split(path / entry.file, records=nodes if len(keys) == 1 else len(keys))
    except DamagedInput as error:
        yield _problem_from_error(entry.file, error)
        return
    rule_on_card = (entry.rule, entry.parameters)
    yield from _property_problems(entry.file, rule=(rule_on_card, (split.rule, split.parameters)))
    # Check positions before they are used as indices.
    problem = split.problem(len(keys), nodes)
    if problem is not None:
        yield Problem(entry.file, "has parts that are not valid", found=problem)
        return

    # The digests on the card, in the split file and of the records must agree.
    digests, counts = _part_digests_and_counts(split, shards, keys)
    card_digests = {name: part.digest for name, part in entry.parts.items()}
    for name in sorted(card_digests | digests):
        card_digest = card_digests.get(name)
        actual = digests.get(name)
        if not card_digest == actual == split.digests.get(name):
            message = f"has different records in {name}"
            yield Problem(entry.file, message, str(card_digest), str(actual))
            continue
        for unit, count in counts[name].items():
            count_on_card = getattr(entry.parts[name], unit)
            label = f"number of {unit} in {name} of {entry.file}"
            yield from _property_problems(CARD_NAME, **{label: (count, count_on_card)})


def _part_digests_and_counts(
    split: SplitFile, shards: Sequence[Shard], keys: Sequence[str]
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Compute digest and counts of each part from the records; of a node split, only node counts."""
    counts = {}
    codes = split.part_codes
    if codes is not None:
        for name, code in PART_CODES.items():
            counts[name] = {"nodes": int((codes == code).sum())}
        return node_digests(codes), counts

    # Sizes of all records in source order; the empty array is for a build without shards.
    empty = np.empty(0, np.int64)
    nodes = np.concatenate([empty, *(np.diff(shard.node_ptr) for shard in shards)])
    edges = np.concatenate([empty, *(np.diff(shard.edge_ptr) for shard in shards)])
    digests = {}
    for name, positions in (split.parts or {}).items():
        digests[name] = graph_keys_digest([keys[position] for position in positions])
        counts[name] = {
            "graphs": len(positions),
            "nodes": int(nodes[positions].sum()),
            "edges": int(edges[positions].sum()),
        }
    return digests, counts


def _column_problems(build: Build, shards: Sequence[Shard] | None) -> Iterator[Problem]:
    """Yield the problems of all finished added columns.

    ``shards`` are the shards of the build, or ``None`` if some cannot be read.
    """
    for name in added_column_names(build.path):
        folder = f"{COLUMNS_FOLDER}/{name}"
        try:
            card = read_added_column_card(build, name)
        except DamagedInput as error:
            # A folder not named after an encoding may not be a column at all.
            if find_encoding(name) is not None:
                yield _problem_from_error(f"{folder}/{CARD_NAME}", error)
            continue
        problems = [
            *_obstacle_problems(build.path, f"{folder}/{CARD_NAME}"),
            *_added_column_problems(build, folder, card),
        ]
        if problems:
            yield problems[0]  # the others follow from it
            continue
        for position, relative in enumerate(card.files):
            entry = relative.model_copy(update={"file": f"{folder}/{relative.file}"})
            column, shard_problems = _check_shard(
                build.path,
                build.card.dataset,
                card.key,
                card.schema_,
                entry,
            )
            yield from shard_problems
            if column is None or shards is None:
                continue
            # The records must be the records of the shard from which the column was computed.
            shard = shards[position]
            has_same_nodes = np.array_equal(column.node_ptr, shard.node_ptr)
            if column.keys != shard.keys or not has_same_nodes:
                yield Problem(entry.file, "has different records than its shard")


def _added_column_problems(build: Build, folder: str, card: AddedColumnCard) -> Iterator[Problem]:
    file = f"{folder}/{CARD_NAME}"
    encoding = find_encoding(card.name)
    if encoding is None:
        return
    if card.encoding_version == encoding.version:
        yield from _property_problems(file, key=(added_column_key(encoding, build.card), card.key))
        expected_schema = added_column_schema(encoding, build.card.schema_)
        yield from _schema_problems(file, expected_schema, card.schema_)
    names = [PurePosixPath(shard.file).name for shard in build.card.shards]
    if [entry.file for entry in card.files] != names:
        yield Problem(
            file, "lists different files", "one file per shard", f"{len(card.files)} files"
        )


@functools.cache
def published_digests_by_key() -> dict[str, dict[str, str]]:
    """Return the published digests of files, by build key."""
    tables: dict[str, dict[str, str]] = {}
    for name in shipped_datasets():
        if "digests" in shipped_names(f"datasets/{name}"):
            tables |= read_shipped(f"datasets/{name}", "digests")
    return tables


def files_unlike_published(card: Card) -> list[str]:
    """Return the files of a build that differ from the published digests; added splits are ignored.

    Raises ``UsageError`` if no digests are published for the build's key.
    """
    table = published_digests_by_key().get(card.key)
    if table is None:
        lines = [f"{key} ({build['about']})" for key, build in published_digests_by_key().items()]
        keys = [line for line in lines if card.dataset in line]
        raise UsageError(
            f"No digests are published for the build {card.key} of {card.dataset}.",
            expected=keys or "none of this dataset",
            steps=Command("kmip-data verify", card.dataset),
        )

    digests = card.digests
    different_files = []
    for file in sorted(digests.keys() | table.keys()):
        is_compared = file.startswith("shards/") or (file in digests and file in table)
        if is_compared and digests.get(file) != table.get(file):
            different_files.append(file)
    return different_files
