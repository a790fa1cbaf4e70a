"""Check a build: card, shards, values, splits and added columns, every byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from kmip_data.builds.columns import (
    ColumnsCard,
    columns_key,
    columns_schema,
    read_columns,
)
from kmip_data.builds.home import COLUMNS, Build, added_names
from kmip_data.errors import DamagedInput, UsageError, check_resources
from kmip_data.files.changes import written_name
from kmip_data.files.reading import read_small
from kmip_data.format.card import CARD_NAME, Card, FileEntry, ShardEntry, SplitEntry, read_card
from kmip_data.format.reader import Shard, content_faults
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.splits import NODE_PARTS, SplitFile, keys_digest, node_digests, read_split
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.runtime.threads import for_ranges


@dataclass(frozen=True)
class Problem:
    """One problem, and the file (relative to the build) that has it."""

    file: str
    what: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        known = [f"{name} {text}" for name in ("expected", "found") if (text := getattr(self, name))]
        return f"{self.file}: {self.what}" + (f" ({', '.join(known)})" if known else "")


def file_problems(path: Path, entry: FileEntry | SplitEntry) -> Iterator[Problem]:
    """Yield problems of a file's presence and bytes."""
    if not (path / entry.file).is_file():  # a device or a pipe may have no end
        yield Problem(entry.file, "is missing", "the file that the card names", "no such file")
        return
    try:
        with (path / entry.file).open("rb") as file:
            digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    except OSError as error:
        check_resources(path / entry.file, error)
        yield Problem(entry.file, "cannot be read", "a readable file", error.strerror or str(error))
        return
    if isinstance(entry, ShardEntry) and size != entry.bytes:
        yield Problem(entry.file, "has another size", f"{entry.bytes:,} bytes", f"{size:,} bytes")
    if digest != entry.sha256:
        yield Problem(entry.file, "has other bytes", f"SHA-256 {entry.sha256}", digest)


def changes(path: Path, file: str, text: str) -> Iterator[Problem]:
    """Yield a problem if a card is not, to the bit, the text that was written."""
    if read_small(path / file) != text.encode():
        yield Problem(file, "was changed after it was written", "the text that its content and digest give")


def unequal(file: str, *compared: tuple[str, str, str]) -> Iterator[Problem]:
    """Yield a problem for each (what, expected, found) of a file whose last two differ."""
    for what, expected, found in compared:
        if expected != found:
            yield Problem(file, what, expected, found)


def strays(path: Path, folder: str, known: Container[str]) -> Iterator[str]:
    """Yield a remark on each file in a folder of a build that its card does not name; such files stay."""
    there = path / folder
    for entry in sorted(there.iterdir() if there.is_dir() else ()):
        if (file := f"{folder}/{entry.name}") not in known and written_name(entry.name) is None:
            yield f"{file} is not part of the build; it is left as it is"


def damage(path: Path, file: str, error: DamagedInput) -> Iterator[Problem]:
    """Turn a reader's error about a file into a problem; a missing file has one already."""
    if (path / file).is_file():
        what = error.what.removeprefix(f"{path / file} ").removesuffix(".")
        yield Problem(file, what, error.parts["expected"] or "", error.parts["found"] or "")


@dataclass
class VerifyReport:
    """Result of :func:`verify_build`.

    ``checked`` counts ``shards``, ``splits``, ``graphs``, ``nodes``, ``edges``, ``bytes`` and ``columns``.
    """

    path: Path
    problems: list[Problem] = field(default_factory=list)
    broken_shards: list[str] = field(default_factory=list)  #: files to rebuild, and no others
    checked: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  #: files that are not of the build

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems


def verify_build(path: str | os.PathLike[str]) -> VerifyReport:
    """Check everything in a build folder that its card vouches for.

    The card is what the build wrote, to the bit; its shards and splits are there and have its digests; every
    shard is well-formed, of the card's schema, dataset and build, and keeps what the schema promises of its
    values; keys are unique; splits are disjoint and in range; counts are the card's. Files that the card
    does not name are remarks. Memory is bounded by one block of values per thread, the keys, and the split
    positions. Raises ``UsageError`` where ``path`` has no card at all, so is not a finished build, or a newer
    kmip-data wrote it.
    """
    path = Path(path).absolute()
    report = VerifyReport(path)
    if not (path / CARD_NAME).exists():
        read_card(path)  # raises, and says what to do
    try:
        card = read_card(path)
    except DamagedInput as error:
        found = error.parts["found"] or ""
        report.problems.append(Problem(CARD_NAME, "cannot be read as a card", "the card of a build", found))
        return report
    report.problems += _card_problems(path, card)
    report.remarks += strays(path, "shards", card.digests)
    shards = _check_shards(report, card, card.schema_)
    if len(shards) == len(card.shards):
        keys = [key for shard in shards for key in shard.keys]
        report.problems += _dataset_problems(card, shards, keys)
        for entry in card.splits.values():
            report.problems += _split_problems(path, entry, shards, keys)
        report.checked["splits"] = len(card.splits)
    if names := added_names(path):
        whole = shards if len(shards) == len(card.shards) else None
        report.problems += column_problems(Build(path, card), whole, report.remarks)
        report.checked["columns"] = len(names)
    return report


def _card_problems(path: Path, card: Card) -> Iterator[Problem]:
    yield from changes(path, CARD_NAME, card.to_json())
    versions = f"version {FORMAT_VERSION}", f"version {card.format_version}"
    yield from unequal(CARD_NAME, ("has another format version", *versions))
    names = [shard.file for shard in card.shards] + [split.file for split in card.splits.values()]
    if len(set(names)) != len(names):
        yield Problem(CARD_NAME, "names a file twice", "each file once")
    if card.splits and not card.default_split:
        yield Problem(CARD_NAME, "has no default split", ", ".join(card.splits), "none")


def _check_shards(report: VerifyReport, card: Card, schema: Schema) -> list[Shard]:
    """Check every shard, on all threads; return those that can be read."""
    found: list[tuple[Shard | None, list[Problem]]] = [(None, [])] * len(card.shards)

    def check(start: int, stop: int) -> None:
        for position in range(start, stop):
            found[position] = _check_shard(report.path, card.dataset, card.key, schema, card.shards[position])

    for_ranges(check, len(card.shards))
    for entry, (_, problems) in zip(card.shards, found, strict=True):
        report.problems += problems
        if problems:
            report.broken_shards.append(entry.file)
    shards = [shard for shard, _ in found if shard is not None]
    report.checked = {
        "shards": len(card.shards),
        "graphs": sum(shard.graphs for shard in shards),
        "nodes": sum(shard.nodes for shard in shards),
        "edges": sum(shard.edges for shard in shards),
        "bytes": sum(entry.bytes for entry in card.shards),
    }
    return shards


def _check_shard(
    path: Path, dataset: str, key: str, schema: Schema, entry: FileEntry
) -> tuple[Shard | None, list[Problem]]:
    """Check a shard, or a file of an added column, against the build or column of that key."""
    problems = list(file_problems(path, entry))
    try:
        shard = Shard(path / entry.file)
        if shard.schema != schema:
            names = [name for name in asdict(schema) if getattr(schema, name) != getattr(shard.schema, name)]
            problems += [Problem(entry.file, "has another schema", "the card's", f"other {', '.join(names)}")]
        problems += unequal(
            entry.file,
            ("belongs to another dataset", dataset, shard.dataset),
            ("belongs to another build", key, shard.build_key),
            ("has another number of graphs", f"{entry.graphs:,}", f"{shard.graphs:,}"),
            ("has another number of nodes", f"{entry.nodes:,}", f"{shard.nodes:,}"),
            ("has another number of edges", f"{entry.edges:,}", f"{shard.edges:,}"),
        )
        problems += [Problem(entry.file, *fault) for fault in content_faults(shard)]
        shard.keys  # noqa: B018 -- reads them: a key that is not text is a fault of this shard
    except DamagedInput as error:
        return None, [*problems, *damage(path, entry.file, error)]
    return shard, problems


def _dataset_problems(card: Card, shards: Sequence[Shard], keys: Sequence[str]) -> Iterator[Problem]:
    for name in ("graphs", "nodes", "edges"):
        total = sum(getattr(shard, name) for shard in shards)
        if card.counts.get(name) != total:
            yield Problem(CARD_NAME, f"has a wrong count of {name}", f"{total:,}", str(card.counts.get(name)))
    if len(set(keys)) != len(keys):
        seen: set[str] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        yield Problem("shards", "hold two records with the same key", "each key once", repr(twice))


def _split_problems(
    path: Path, entry: SplitEntry, shards: Sequence[Shard], keys: Sequence[str]
) -> Iterator[Problem]:
    yield from file_problems(path, entry)
    try:
        records = sum(shard.nodes for shard in shards) if len(keys) == 1 else len(keys)
        split = read_split(path / entry.file, records=records)
    except DamagedInput as error:
        yield from damage(path, entry.file, error)
        return
    if split.rule != entry.rule or split.parameters != entry.parameters:
        rules = (f"{of.rule} {of.parameters}" for of in (entry, split))
        yield Problem(entry.file, "follows another rule", *rules)
    fault = split.fault(len(keys), sum(shard.nodes for shard in shards))
    if fault is not None:
        yield Problem(entry.file, "has parts that are not valid", "each record in one part at most", fault)
        return
    digests, counts = _measure(split, shards, keys)
    for name in sorted({*entry.parts, *digests}):
        there = entry.parts.get(name)
        if there is None or name not in digests:
            yield Problem(entry.file, "has other parts", ", ".join(entry.parts), ", ".join(digests))
        elif not digests[name] == there.digest == split.digests[name]:
            yield Problem(entry.file, f"has other records in {name}", there.digest, digests[name])
        else:
            what = f"has a wrong count of records in {name} of {entry.file}"
            for unit, count in counts[name].items():
                if getattr(there, unit) != count:
                    found = f"{getattr(there, unit):,} {unit}"
                    yield Problem(CARD_NAME, what, f"{count:,} {unit}", found)


def _measure(
    split: SplitFile, shards: Sequence[Shard], keys: Sequence[str]
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Return digest and counts of each part, from the records; of a split of nodes only their number."""
    if split.node_code is not None:
        code = split.node_code
        counts = {name: {"nodes": int((code == value).sum())} for name, value in NODE_PARTS.items()}
        return node_digests(code), counts
    nodes, edges = (
        np.concatenate([np.empty(0, np.int64), *(np.diff(getattr(shard, pointers)) for shard in shards)])
        for pointers in ("node_ptr", "edge_ptr")
    )
    parts = split.parts or {}
    counts = {
        name: {"graphs": len(part), "nodes": int(nodes[part].sum()), "edges": int(edges[part].sum())}
        for name, part in parts.items()
    }
    return {name: keys_digest([keys[at] for at in part]) for name, part in parts.items()}, counts


def column_problems(build: Build, shards: Sequence[Shard] | None, remarks: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with the added columns of a build; unfinished ones have no card and are left out.

    ``shards`` are those of the build; ``None`` where some cannot be read. Files that are not of the build are
    added to ``remarks``.
    """
    for name in added_names(build.path):
        folder = f"{COLUMNS}/{name}"
        try:
            card = read_columns(build, name)
        except DamagedInput as error:
            if not _is_encoding(name):
                remarks.append(f"{folder} is not part of the build; it is left as it is")
                continue
            parts = (error.parts[name] or "" for name in ("expected", "found"))
            yield Problem(f"{folder}/{CARD_NAME}", error.what, *parts)
            continue
        problems = list(_columns_card_problems(build, folder, card))
        yield from problems
        if not problems:
            known = {f"{folder}/{file}" for file in (CARD_NAME, *(entry.file for entry in card.files))}
            remarks += strays(build.path, folder, known)
            for position, entry in enumerate(card.files):
                entry = entry.model_copy(update={"file": f"{folder}/{entry.file}"})  # noqa: PLW2901
                found, wrong = _check_shard(build.path, build.card.dataset, card.key, card.schema_, entry)
                yield from wrong
                shard = None if shards is None else shards[position]
                if found is None or shard is None:
                    continue
                if found.keys != shard.keys or not np.array_equal(found.node_ptr, shard.node_ptr):
                    what = "has other records than its shard"
                    yield Problem(entry.file, what, "the same keys and sizes", "others")


def _is_encoding(name: str) -> bool:
    try:
        parse_encoding(name)
    except UsageError:
        return False
    return True


def _columns_card_problems(build: Build, folder: str, card: ColumnsCard) -> Iterator[Problem]:
    file = f"{folder}/{CARD_NAME}"
    if changed := list(changes(build.path, file, card.to_json())):
        yield from changed
        return
    try:
        encoding = parse_encoding(card.name)
    except UsageError:
        return  # of another version of this package
    if card.encoding_version == encoding.version:
        yield from unequal(file, ("belongs to another build", columns_key(encoding, build.card), card.key))
        if card.schema_ != columns_schema(encoding, build.card.schema_):
            yield Problem(file, "has another schema", f"that of {card.name}", "another")
    wanted = [PurePosixPath(shard.file).name for shard in build.card.shards]
    if [entry.file for entry in card.files] != wanted:
        yield Problem(file, "names other files", "one for each shard", f"{len(card.files)} files")
