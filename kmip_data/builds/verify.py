"""Check a build: card, shards, values, splits and added columns, every byte."""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from kmip_data.builds.columns import ColumnsCard, columns_key, columns_schema, read_columns
from kmip_data.builds.home import COLUMNS, Build, added_names
from kmip_data.errors import DamagedInput, UsageError, check_resources
from kmip_data.files.changes import written_name
from kmip_data.files.reading import read_small
from kmip_data.format.card import CARD_NAME, Card, FileEntry, Member, SplitEntry, read_card
from kmip_data.format.reader import Shard, content_faults
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.splits import NODE_PARTS, SplitFile, keys_digest, node_digests, read_split
from kmip_data.graphs.encoding import Encoding, parse_encoding
from kmip_data.manifest import read_shipped, shipped_datasets, shipped_names
from kmip_data.runtime.threads import for_ranges


@dataclass(frozen=True)
class Problem:
    """One problem, and the file (relative to the build) that has it."""

    file: str
    what: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        known = [
            f"{name} {text}" for name in ("expected", "found") if (text := getattr(self, name))
        ]
        return f"{self.file}: {self.what}" + (f" ({', '.join(known)})" if known else "")


def _files(entry: FileEntry | SplitEntry) -> Mapping[str, Member | SplitEntry]:
    return entry.files if isinstance(entry, FileEntry) else {entry.file: entry}


def _file_problems(path: Path, entry: FileEntry | SplitEntry) -> Iterator[Problem]:
    for name, known in _files(entry).items():
        if not (path / name).is_file():  # a device or a pipe may have no end
            yield Problem(name, "is missing")
            continue
        try:
            with (path / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            check_resources(path / name, error)
            yield Problem(name, "cannot be read", found=error.strerror or str(error))
            continue
        if digest != known.sha256 or size != getattr(known, "bytes", size):
            yield Problem(
                name, "has other bytes", f"SHA-256 {known.sha256}", f"{digest}, {size:,} bytes"
            )


def _changed(path: Path, file: str, text: str) -> Iterator[Problem]:
    """Yield a problem if a card is not, to the bit, the text that was written."""
    if read_small(path / file) != text.encode():
        yield Problem(file, "was changed after it was written")


def _differing(file: str, **facts: tuple[object, object]) -> Iterator[Problem]:
    """Yield a problem for each fact of a file, as expected and as found, whose two values differ."""
    for name, (expected, found) in facts.items():
        if expected != found:
            yield Problem(file, f"has another {name.replace('_', ' ')}", str(expected), str(found))


def _other_schema(file: str, expected: Schema, found: Schema) -> Iterator[Problem]:
    there = asdict(found)
    if names := [name for name, value in asdict(expected).items() if there[name] != value]:
        yield Problem(file, "has another schema", found=f"other {', '.join(names)}")


def _strays(path: Path, folder: str, known: Container[str]) -> Iterator[str]:
    """Yield a remark on each file in a folder of a build that its card does not name; such files stay."""
    there = path / folder
    for entry in sorted(there.iterdir() if there.is_dir() else ()):
        if (file := f"{folder}/{entry.name}") not in known and written_name(entry.name) is None:
            yield f"{file} is not part of the build; it is left as it is"


def _damage(path: Path, entry: FileEntry | SplitEntry, error: DamagedInput) -> Iterator[Problem]:
    """Turn a reader's error about a file into a problem; a missing file has one already."""
    if all((path / name).is_file() for name in _files(entry)):
        what = error.what.removeprefix(f"{path / entry.file} ").removesuffix(".")
        yield Problem(entry.file, what, found=error.parts["found"] or "")


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
        report.problems.append(Problem(CARD_NAME, "cannot be read as a card", found=found))
        return report
    report.problems += _card_problems(path, card)
    report.remarks += _strays(path, "shards", card.digests)
    shards = _check_shards(report, card, card.schema_)
    if len(shards) == len(card.shards):
        keys = [key for shard in shards for key in shard.keys]
        report.problems += _dataset_problems(card, shards, keys)
        for entry in card.splits.values():
            report.problems += _split_problems(path, entry, shards, keys)
        report.checked["splits"] = len(card.splits)
    if names := added_names(path):
        whole = shards if len(shards) == len(card.shards) else None
        report.problems += _column_problems(Build(path, card), whole, report.remarks)
        report.checked["columns"] = len(names)
    return report


def _card_problems(path: Path, card: Card) -> Iterator[Problem]:
    yield from _changed(path, CARD_NAME, card.to_json())
    yield from _differing(CARD_NAME, format_version=(FORMAT_VERSION, card.format_version))
    if len(card.digests) != sum(len(shard.files) for shard in card.shards) + len(card.splits):
        yield Problem(CARD_NAME, "names a file twice")
    if card.splits and not card.default_split:
        yield Problem(CARD_NAME, "has no default split", ", ".join(card.splits), "none")


def _check_shards(report: VerifyReport, card: Card, schema: Schema) -> list[Shard]:
    """Check every shard, on all threads; return those that can be read."""
    found: list[tuple[Shard | None, list[Problem]]] = [(None, [])] * len(card.shards)

    def check(start: int, stop: int) -> None:
        for position in range(start, stop):
            found[position] = _check_shard(
                report.path, card.dataset, card.key, schema, card.shards[position]
            )

    for_ranges(check, len(card.shards))
    for entry, (_, problems) in zip(card.shards, found, strict=True):
        report.problems += problems
        if problems:
            report.broken_shards.append(entry.file)
    shards = [shard for shard, _ in found if shard is not None]
    sizes = {
        unit: sum(getattr(shard, unit) for shard in shards) for unit in ("graphs", "nodes", "edges")
    }
    report.checked = {
        "shards": len(card.shards),
        **sizes,
        "bytes": sum(entry.bytes for entry in card.shards),
    }
    return shards


def _check_shard(
    path: Path, dataset: str, key: str, schema: Schema, entry: FileEntry
) -> tuple[Shard | None, list[Problem]]:
    """Check a shard, or a file of an added column, against the build or column of that key."""
    problems = list(_file_problems(path, entry))
    try:
        shard = Shard(path / entry.file)
        problems += _other_schema(entry.file, schema, shard.schema)
        problems += _differing(
            entry.file,
            dataset=(dataset, shard.dataset),
            build_key=(key, shard.build_key),
            number_of_graphs=(entry.graphs, shard.graphs),
            number_of_nodes=(entry.nodes, shard.nodes),
            number_of_edges=(entry.edges, shard.edges),
            # Others lie where a reader looks for a shard that is cut, or is not.
            list_of_files=(
                [Path(name).name for name in entry.files],
                [path.name for path in shard.files],
            ),
        )
        problems += [Problem(entry.file, *fault) for fault in content_faults(shard)]
        shard.keys  # noqa: B018 -- reads them: a key that is not text is a fault of this shard
    except DamagedInput as error:
        return None, [*problems, *_damage(path, entry, error)]
    return shard, problems


def _dataset_problems(
    card: Card, shards: Sequence[Shard], keys: Sequence[str]
) -> Iterator[Problem]:
    for name in ("graphs", "nodes", "edges"):
        total = sum(getattr(shard, name) for shard in shards)
        yield from _differing(CARD_NAME, **{f"number of {name}": (total, card.counts[name])})
    if len(set(keys)) != len(keys):
        twice = Counter(keys).most_common(1)[0][0]
        yield Problem("shards", "hold two records with the same key", found=repr(twice))


def _split_problems(
    path: Path, entry: SplitEntry, shards: Sequence[Shard], keys: Sequence[str]
) -> Iterator[Problem]:
    yield from _file_problems(path, entry)
    nodes = sum(shard.nodes for shard in shards)
    try:
        split = read_split(path / entry.file, records=nodes if len(keys) == 1 else len(keys))
    except DamagedInput as error:
        yield from _damage(path, entry, error)
        return
    if split.rule != entry.rule or split.parameters != entry.parameters:
        rules = (f"{of.rule} {of.parameters}" for of in (entry, split))
        yield Problem(entry.file, "follows another rule", *rules)
    if (fault := split.fault(len(keys), nodes)) is not None:
        yield Problem(entry.file, "has parts that are not valid", found=fault)
        return
    digests, counts = _measure(split, shards, keys)
    if digests.keys() != entry.parts.keys():
        yield Problem(entry.file, "has other parts", ", ".join(entry.parts), ", ".join(digests))
    for name in sorted(digests.keys() & entry.parts.keys()):
        part = entry.parts[name]
        if not digests[name] == part.digest == split.digests[name]:
            yield Problem(entry.file, f"has other records in {name}", part.digest, digests[name])
        elif wrong := {
            unit: count for unit, count in counts[name].items() if getattr(part, unit) != count
        }:
            what = f"has a wrong count of records in {name} of {entry.file}"
            yield Problem(
                CARD_NAME, what, str(wrong), str({unit: getattr(part, unit) for unit in wrong})
            )


def _measure(
    split: SplitFile, shards: Sequence[Shard], keys: Sequence[str]
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Return digest and counts of each part, from the records; of a split of nodes only their number."""
    if (code := split.node_code) is not None:
        counts = {name: {"nodes": int((code == value).sum())} for name, value in NODE_PARTS.items()}
        return node_digests(code), counts
    nodes, edges = (
        np.concatenate(
            [np.empty(0, np.int64), *(np.diff(getattr(shard, pointers)) for shard in shards)]
        )
        for pointers in ("node_ptr", "edge_ptr")
    )
    parts = split.parts or {}
    counts = {
        name: {
            "graphs": len(part),
            "nodes": int(nodes[part].sum()),
            "edges": int(edges[part].sum()),
        }
        for name, part in parts.items()
    }
    return {name: keys_digest([keys[at] for at in part]) for name, part in parts.items()}, counts


def _column_problems(
    build: Build, shards: Sequence[Shard] | None, remarks: list[str]
) -> Iterator[Problem]:
    """Yield what is wrong with the added columns of a build; unfinished ones have no card and are left out.

    ``shards`` are those of the build; ``None`` where some cannot be read. Files that are not of the build are
    added to ``remarks``.
    """
    for name in added_names(build.path):
        folder = f"{COLUMNS}/{name}"
        try:
            card = read_columns(build, name)
        except DamagedInput as error:
            if _encoding(name) is None:
                remarks.append(f"{folder} is not part of the build; it is left as it is")
            else:
                yield Problem(f"{folder}/{CARD_NAME}", error.what, found=error.parts["found"] or "")
            continue
        problems = list(_columns_card_problems(build, folder, card))
        yield from problems[:1]  # others follow from it
        if problems:
            continue
        known = {f"{folder}/{file}" for file in (CARD_NAME, *card.digests)}
        remarks += _strays(build.path, folder, known)
        for position, relative in enumerate(card.files):
            entry = relative.model_copy(update={"file": f"{folder}/{relative.file}"})
            found, wrong = _check_shard(
                build.path, build.card.dataset, card.key, card.schema_, entry
            )
            yield from wrong
            shard = None if shards is None else shards[position]
            if found is None or shard is None:
                continue
            if found.keys != shard.keys or not np.array_equal(found.node_ptr, shard.node_ptr):
                yield Problem(entry.file, "has other records than its shard")


def _encoding(name: str) -> Encoding | None:
    """Return the encoding of an added column; ``None`` for one of another version of this package."""
    try:
        return parse_encoding(name)
    except UsageError:
        return None


def _columns_card_problems(build: Build, folder: str, card: ColumnsCard) -> Iterator[Problem]:
    file = f"{folder}/{CARD_NAME}"
    encoding = _encoding(card.name)
    yield from _changed(build.path, file, card.to_json())
    if encoding is None:
        return
    if card.encoding_version == encoding.version:
        yield from _differing(file, key=(columns_key(encoding, build.card), card.key))
        yield from _other_schema(file, columns_schema(encoding, build.card.schema_), card.schema_)
    wanted = [PurePosixPath(shard.file).name for shard in build.card.shards]
    if [entry.file for entry in card.files] != wanted:
        yield Problem(file, "names other files", "one for each shard", f"{len(card.files)} files")


@functools.cache
def published_builds() -> dict[str, dict[str, str]]:
    """Return the table of each published build by its key."""
    tables: dict[str, dict[str, str]] = {}
    for name in shipped_datasets():
        if "digests" in shipped_names(f"datasets/{name}"):
            tables |= read_shipped(f"datasets/{name}", "digests")
    return tables


def unlike_published(card: Card) -> list[str]:
    """Return the files of a build whose digest is not the published one; its further splits are not compared.

    Raises ``UsageError`` where no digests are published for the build's key.
    """
    table = published_builds().get(card.key)
    if table is None:
        known = [f"\n    {key} ({each['about']})" for key, each in published_builds().items()]
        expected = "".join(each for each in known if card.dataset in each) or "none of this dataset"
        what = f"No digests are published for the build {card.key} of {card.dataset}."
        raise UsageError(what, expected=expected, next=f"kmip-data verify {card.dataset}")
    found = card.digests
    other = {file for file in found.keys() & table.keys() if found[file] != table[file]}
    one_sided = {file for file in found.keys() ^ table.keys() if file.startswith("shards/")}
    return sorted(other | one_sided)
