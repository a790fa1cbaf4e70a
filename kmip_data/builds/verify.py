"""Check a build: card, shards, values, splits and added columns, every byte."""

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
    ColumnsCard,
    columns_key,
    columns_schema,
    named_encoding,
    read_columns_card,
    remarks_on_strays,
)
from kmip_data.builds.home import COLUMNS, Build, added_column_names
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import build_marker_content, marker_content
from kmip_data.files.folder_marker import MARKER
from kmip_data.files.reading import read_small_file, sha256_file
from kmip_data.format.build_files import CROISSANT_NAME, metadata_files
from kmip_data.format.card import CARD_NAME, Card, FileEntry, ShardMember, SplitEntry, read_card
from kmip_data.format.reader import Shard, check_column, check_values
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.split_files import (
    NODE_PARTS,
    SplitFile,
    keys_digest,
    node_digests,
    read_split,
)
from kmip_data.runtime.parallel import run_in_ranges
from kmip_data.strict_model import read_shipped, shipped_datasets, shipped_names


@dataclass(frozen=True)
class Problem:
    """One problem, and the file (relative to the build) that has it."""

    file: str
    what: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        details = []
        if self.expected:
            details.append(f"expected {self.expected}")
        if self.found:
            details.append(f"found {self.found}")
        text = f"{self.file}: {self.what}"
        return f"{text} ({', '.join(details)})" if details else text


def _file_problems(path: Path, entry: FileEntry | SplitEntry) -> Iterator[Problem]:
    files: Mapping[str, ShardMember | SplitEntry]
    files = entry.files if isinstance(entry, FileEntry) else {entry.file: entry}
    for name, known in files.items():
        if _is_behind_link(path, name):
            yield Problem(name, "is a symbolic link, or lies behind one")
            continue
        if not (path / name).is_file():  # a device or a pipe may have no end
            yield Problem(name, "is missing")
            continue
        try:
            digest, size = sha256_file(path / name)
        except DamagedInput as error:
            yield _problem_of_error(path, name, error)
            continue
        if digest != known.sha256 or size != getattr(known, "bytes", size):
            yield Problem(
                name,
                "has other bytes",
                f"SHA-256 {known.sha256}",
                f"{digest}, {size:,} bytes",
            )


def _is_behind_link(path: Path, name: str) -> bool:
    inside = [path / parent for parent in PurePosixPath(name).parents[:-1]]
    return any(ancestor.is_symlink() for ancestor in (*inside, path / name))


def _property_problems(file: str, **facts: tuple[object, object]) -> Iterator[Problem]:
    """Yield a problem for each property of a file that differs from the expected value."""
    for name, (expected, actual) in facts.items():
        if expected != actual:
            problem = f"has another {name.replace('_', ' ')}"
            yield Problem(file, problem, str(expected), str(actual))


def _schema_problems(file: str, expected: Schema, actual: Schema) -> Iterator[Problem]:
    actual_values = asdict(actual)
    names = [name for name, value in asdict(expected).items() if actual_values[name] != value]
    if names:
        yield Problem(file, "has another schema", found=f"other {', '.join(names)}")


def _problem_of_error(path: Path, file: str, error: DamagedInput) -> Problem:
    message = error.message.removeprefix(f"{path / file} ").removesuffix(".")
    return Problem(file, message, found=error.found or "")


@dataclass
class VerifyReport:
    """Result of :func:`verify_build`.

    ``checked`` counts ``shards``, ``splits``, ``graphs``, ``nodes``, ``edges``, ``bytes`` and
    ``columns``.
    """

    path: Path
    problems: list[Problem] = field(default_factory=list)
    broken_shards: list[str] = field(default_factory=list)  #: files to rebuild, and no others
    checked: dict[str, int] = field(default_factory=dict)
    #: files that are made of the card, and differ from what this version makes of it
    outdated: list[str] = field(default_factory=list)
    #: these, files that are not of the build, features that cannot be trained on
    remarks: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems


def verify_build(path: str | os.PathLike[str]) -> VerifyReport:
    """Check everything in a build folder that its card lists.

    The card is what the build wrote, to the bit; its shards and splits exist and have its
    digests; every shard is well-formed, of the card's schema, dataset and build, and keeps what the
    schema promises of its values; keys are unique; splits are disjoint and in range; counts are the
    card's. Files that the card does not name are remarks. Memory is bounded by one block of values
    per thread, the keys, and the split positions. Raises ``UsageError`` where ``path`` has no card
    at all, so is not a finished build, or a newer
    kmip-data wrote it.
    """
    path = Path(path).absolute()
    report = VerifyReport(path)
    try:
        card = read_card(path)
    except DamagedInput as error:
        report.problems.append(_problem_of_error(path, CARD_NAME, error))
        return report

    # 1. The card and every shard, on all threads.
    report.problems += _card_problems(card)
    content = marker_content(path)
    if content not in {None, build_marker_content(card.key)}:
        report.problems.append(
            Problem(MARKER, "is of another folder", build_marker_content(card.key), content or "")
        )
    report.outdated += _outdated_files(path, card)
    for name in report.outdated:
        report.remarks.append(f"{name} is not what the card says; --repair writes it again")
    report.remarks += remarks_on_strays(path)
    shards = _check_shards(report, card, card.schema_)
    # 2. Keys and splits run over all records, so a shard that cannot be read hides their problems.
    readable = len(shards) == len(card.shards)
    keys = [key for shard in shards for key in shard.keys]
    if readable:
        report.problems += _dataset_problems(card, shards, keys)
    for entry in card.splits.values():
        problems = list(_file_problems(path, entry))
        if readable and not problems:
            problems = list(_split_problems(path, entry, shards, keys))
        report.problems += problems
    report.checked["splits"] = len(card.splits)

    # 3. Added columns, each file next to its shard.
    columns = added_column_names(path)
    if columns:
        build = Build(path, card)
        report.problems += _column_problems(build, shards if readable else None)
        report.checked["columns"] = len(columns)
    if report.ok:
        report.remarks += feature_problems(Build(path, card))
    return report


def feature_problems(build: Build, features: Container[str] = ("x", "edge_attr")) -> Iterator[str]:
    """Yield where features are NaN or infinite, which the schema of your own graphs may allow."""
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
    """Yield the files made of the card that are missing or differ, besides the day in the metadata."""
    with_picture = metadata_files(card, picture=True)
    for name, data in metadata_files(card).items():
        try:
            stored = b"" if _is_behind_link(path, name) else read_small_file(path / name)
            if name == CROISSANT_NAME:
                stored_metadata = json.loads(stored)
                metadata = json.loads(data)
                differs = {
                    **stored_metadata,
                    "datePublished": metadata["datePublished"],
                } != metadata
            else:
                differs = stored not in {data, with_picture[name]}
        except (OSError, ValueError, TypeError, RecursionError):
            differs = True
        if differs:
            yield name


def _card_problems(card: Card) -> Iterator[Problem]:
    yield from _property_problems(CARD_NAME, format_version=(FORMAT_VERSION, card.format_version))
    files = len(card.splits) + sum(len(shard.files) for shard in card.shards)
    if len(card.digests) != files:
        yield Problem(CARD_NAME, "names a file twice")
    if card.splits and not card.default_split:
        yield Problem(
            CARD_NAME,
            "has no default split",
            ", ".join(card.splits),
            "none",
        )


def _check_shards(report: VerifyReport, card: Card, schema: Schema) -> list[Shard]:
    """Check every shard, on all threads; return the readable shards."""
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
    """Check a shard, or a file of an added column, against the build or column of that key."""
    # Other bytes explain whatever else would be found.
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
            # A reader looks for a whole shard first, then for its members.
            list_of_files=(
                [Path(name).name for name in entry.files],
                [path.name for path in shard.files],
            ),
        )
        check_values(shard)
        shard.keys  # noqa: B018 -- reads them: a key that is not text is a problem of this shard
    except DamagedInput as error:
        return None, [*problems, _problem_of_error(path, entry.file, error)]
    return shard, problems


def _dataset_problems(
    card: Card,
    shards: Sequence[Shard],
    keys: Sequence[str],
) -> Iterator[Problem]:
    for unit in ("graphs", "nodes", "edges"):
        total = sum(getattr(shard, unit) for shard in shards)
        yield from _property_problems(
            CARD_NAME, **{f"number of {unit}": (total, card.counts[unit])}
        )
    if len(set(keys)) != len(keys):
        most_frequent = Counter(keys).most_common(1)[0][0]
        yield Problem(
            "shards",
            "hold two records with the same key",
            found=repr(most_frequent),
        )


def _split_problems(
    path: Path,
    entry: SplitEntry,
    shards: Sequence[Shard],
    keys: Sequence[str],
) -> Iterator[Problem]:
    nodes = sum(shard.nodes for shard in shards)
    try:
        split = read_split(path / entry.file, records=nodes if len(keys) == 1 else len(keys))
    except DamagedInput as error:
        yield _problem_of_error(path, entry.file, error)
        return
    known_rule = (entry.rule, entry.parameters)
    yield from _property_problems(entry.file, rule=(known_rule, (split.rule, split.parameters)))
    # Positions are checked before they index anything.
    invalid_parts = split.problem(len(keys), nodes)
    if invalid_parts is not None:
        yield Problem(entry.file, "has parts that are not valid", found=invalid_parts)
        return

    # Three digests of each part: on the card, recomputed, in the split's own file.
    digests, counts = _part_digests_and_counts(split, shards, keys)
    known = {name: part.digest for name, part in entry.parts.items()}
    for name in sorted(known | digests):
        actual = digests.get(name)
        if not known.get(name) == actual == split.digests.get(name):
            yield Problem(
                entry.file,
                f"has other records in {name}",
                str(known.get(name)),
                str(actual),
            )
            continue
        for unit, count in counts[name].items():
            stated = getattr(entry.parts[name], unit)
            fact = f"number of {unit} in {name} of {entry.file}"
            yield from _property_problems(CARD_NAME, **{fact: (count, stated)})


def _part_digests_and_counts(
    split: SplitFile,
    shards: Sequence[Shard],
    keys: Sequence[str],
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Return digest and counts of each part, from the records.

    A split of nodes has only their number.
    """
    counts = {}
    code = split.node_code
    if code is not None:
        for name, value in NODE_PARTS.items():
            counts[name] = {"nodes": int((code == value).sum())}
        return node_digests(code), counts

    # Sizes of all records by position in source order; without shards there are none to join.
    nothing = np.empty(0, np.int64)
    nodes = np.concatenate([nothing, *(np.diff(shard.node_ptr) for shard in shards)])
    edges = np.concatenate([nothing, *(np.diff(shard.edge_ptr) for shard in shards)])
    digests = {}
    for name, part in (split.parts or {}).items():
        digests[name] = keys_digest([keys[record] for record in part])
        counts[name] = {
            "graphs": len(part),
            "nodes": int(nodes[part].sum()),
            "edges": int(edges[part].sum()),
        }
    return digests, counts


def _column_problems(
    build: Build,
    shards: Sequence[Shard] | None,
) -> Iterator[Problem]:
    """Yield what is wrong with the added columns of a build.

    Unfinished ones have no card and are left out.

    ``shards`` are the build's; ``None`` where some cannot be read.
    """
    for name in added_column_names(build.path):
        folder = f"{COLUMNS}/{name}"
        try:
            card = read_columns_card(build, name)
        except DamagedInput as error:
            # A folder that no encoding of this version names may be anybody's.
            if named_encoding(name) is not None:
                yield _problem_of_error(build.path, f"{folder}/{CARD_NAME}", error)
            continue
        problems = list(_columns_card_problems(build, folder, card))
        yield from problems[:1]  # others follow from it
        if problems:
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
            # A column fits only the shard that it was computed from.
            shard = shards[position]
            same_nodes = np.array_equal(column.node_ptr, shard.node_ptr)
            if column.keys != shard.keys or not same_nodes:
                yield Problem(entry.file, "has other records than its shard")


def _columns_card_problems(
    build: Build,
    folder: str,
    card: ColumnsCard,
) -> Iterator[Problem]:
    file = f"{folder}/{CARD_NAME}"
    encoding = named_encoding(card.name)
    if encoding is None:
        return
    if card.encoding_version == encoding.version:
        yield from _property_problems(file, key=(columns_key(encoding, build.card), card.key))
        yield from _schema_problems(
            file,
            columns_schema(encoding, build.card.schema_),
            card.schema_,
        )
    names = [PurePosixPath(shard.file).name for shard in build.card.shards]
    if [entry.file for entry in card.files] != names:
        yield Problem(
            file,
            "names other files",
            "one for each shard",
            f"{len(card.files)} files",
        )


@functools.cache
def published_builds() -> dict[str, dict[str, str]]:
    """Return the table of each published build by its key."""
    tables: dict[str, dict[str, str]] = {}
    for name in shipped_datasets():
        if "digests" in shipped_names(f"datasets/{name}"):
            tables |= read_shipped(f"datasets/{name}", "digests")
    return tables


def files_unlike_published(card: Card) -> list[str]:
    """Return the files of a build whose digest is not the published one.

    Its further splits are not compared.

    Raises ``UsageError`` where no digests are published for the build's key.
    """
    table = published_builds().get(card.key)
    if table is None:
        lines = [f"\n    {key} ({build['about']})" for key, build in published_builds().items()]
        known = "".join(line for line in lines if card.dataset in line)
        raise UsageError(
            f"No digests are published for the build {card.key} of {card.dataset}.",
            expected=known or "none of this dataset",
            next=f"kmip-data verify {card.dataset}",
        )

    digests = card.digests
    unlike = []
    for file in sorted(digests.keys() | table.keys()):
        is_compared = file.startswith("shards/") or (file in digests and file in table)
        if is_compared and digests.get(file) != table.get(file):
            unlike.append(file)
    return unlike
