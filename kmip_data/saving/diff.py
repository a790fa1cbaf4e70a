"""``kmip_data.diff``: tell whether two copies of a dataset are the same, and where they differ."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from kmip_data.arrays import I64, Array
from kmip_data.builds.home import Build, Home, path_or_none, unused_name
from kmip_data.errors import DamagedInput, KmipDataError
from kmip_data.files.path_errors import absent_file_error
from kmip_data.format.card import CARD_NAME, SplitEntry
from kmip_data.format.split_files import PART_CODES
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.find_builds import find_build
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.reading.assemble import BatchAssembler, ItemField, item_fields
from kmip_data.reading.gather import LEVELS
from kmip_data.reading.store import shared_store
from kmip_data.saving.compared_blocks import EDGES, ComparedColumn
from kmip_data.saving.comparison import compare
from kmip_data.saving.save import save
from kmip_data.saving.tallies import Difference
from kmip_data.text import dataset_name_from

Comparable = str | os.PathLike[str] | Build | Iterable[Data]


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`diff`."""

    counts: Mapping[str, int]  #: graphs, nodes and edges of A
    differences: list[Difference]

    @property
    def equal(self) -> bool:
        """True if there is no difference."""
        return not self.differences


def diff(
    a: Comparable, b: Comparable, *, home: str | os.PathLike[str] | Home | None = None
) -> Comparison:
    """Compare two datasets: counts, graphs, their order, columns, edges and splits.

    Files are compared as ``kmip-data build graphs`` reads them, and other objects as
    :func:`kmip_data.save` stores them, both in a temporary build. Two builds whose cards have the
    same digests are equal; only shards with different digests are read. Splits are compared if both
    sides have one, and those drawn at random only between builds. Keys of graphs, added columns and
    other fields of the cards are not compared. The rules are those of
    :func:`kmip_data.saving.comparison.compare`.

    Parameters
    ----------
    a, b
        A build or its folder or name; a file, folder or archive of graphs, such as the processed
        file of a PyTorch Geometric dataset; a dataset or an iterable of ``Data``.
    home
        Home folder with the builds.

    Returns
    -------
    Comparison
        ``equal``, and ``differences`` with their numbers and first examples.

    Raises
    ------
    UsageError, DamagedInput, OutOfResources
        A side cannot be read, which the message names A or B; a graph needs more memory than is free.

    Examples
    --------
    >>> import kmip_data
    >>> kmip_data.diff("old/processed/data.pt", "new/processed/data.pt").equal  # doctest: +SKIP
    """
    home = Home.locate(home)
    with tempfile.TemporaryDirectory() as folder:
        build_a = _build_of_side("A", a, home, Path(folder))
        build_b = _build_of_side("B", b, home, Path(folder))
        return Comparison(build_a.card.counts, list(_differences(build_a, build_b, Path(folder))))


def _build_of_side(side: str, source: Comparable, home: Home, folder: Path) -> Build:
    """Return the build of a side, made in ``folder`` unless it is one; errors name the side."""
    if isinstance(source, Build):
        return source
    try:
        if not isinstance(source, str | os.PathLike):
            with warnings.catch_warnings(action="ignore"):  # about features that are not finite
                return save(source, folder / side, label=NO_LABEL)
        path = path_or_none(source, home)
        if path is not None and not path.exists():
            raise absent_file_error(path, "check the path of the file or build")
        if path is not None and not (path / CARD_NAME).is_file():
            return _build_of_files(side, path, home, folder)
        return find_build(source, home=home)
    except KmipDataError as error:
        error.message = f"{side} cannot be compared: {error.message}"
        raise


def _build_of_files(side: str, path: Path, home: Home, folder: Path) -> Build:
    """Return a build of files; targets whose meaning is not clear are read without one."""
    build = functools.partial(
        build_own, "graphs", side, {"path": path}, home=Home(folder / "home"), quiet=True
    )
    try:
        return build()
    except DamagedInput as error:
        with contextlib.suppress(KmipDataError):
            return build(parameters={"label": (NO_LABEL,)})
        if error.next and error.next.startswith("--set"):
            name = unused_name(dataset_name_from(path.stem), home)
            archive = shlex.quote(str(path))
            error.next = (
                f"kmip-data build graphs --name {name} --archive {archive} {error.next}"
                f"; then compare the build {name}"
            )
        raise error from None


def _differences(a: Build, b: Build, folder: Path) -> Iterator[Difference]:
    """Yield the differences of two builds, of which those below ``folder`` are temporary."""
    # 1. Splits that both have; parts drawn at random say nothing about a file.
    drawn_too = not any(build.path.is_relative_to(folder) for build in (a, b))
    splits_a = _compared_splits(a, drawn_too=drawn_too)
    splits_b = _compared_splits(b, drawn_too=drawn_too)
    if not splits_a or not splits_b:
        splits_a = splits_b = {}
    elif splits_a.keys().isdisjoint(splits_b):  # the default split of each, under the name in A
        splits_a = dict([next(iter(splits_a.items()))])
        splits_b = dict.fromkeys(splits_a, next(iter(splits_b.values())))
    has_equal_splits = _digests(splits_a) == _digests(splits_b)

    # 2. Shards with equal digests have the same graphs.
    equal = [np.empty(0, np.int64)]
    first = 0
    for shard_a, shard_b in zip(a.card.shards, b.card.shards, strict=False):
        if shard_a.sha256 == shard_b.sha256:
            equal.append(np.arange(first, first + shard_a.graphs))
        first += shard_a.graphs
        if shard_a.graphs != shard_b.graphs:
            break
    if (
        has_equal_splits
        and sum(map(len, equal)) == a.card.counts["graphs"] == b.card.counts["graphs"]
    ):
        return

    # 3. Read all others, or all if the parts of a graph may differ.
    if not has_equal_splits:
        equal = equal[:1]
    yield from compare(_BuildSide(a, splits_a), _BuildSide(b, splits_b), np.concatenate(equal))


def _compared_splits(build: Build, *, drawn_too: bool) -> dict[str, SplitEntry]:
    """Return the splits of a build by name, the default first."""
    splits = sorted(build.card.splits.items(), key=lambda item: item[0] != build.card.default_split)
    return {
        name: entry for name, entry in splits if drawn_too or "split_seed" not in entry.parameters
    }


def _digests(splits: Mapping[str, SplitEntry]) -> dict[str, str]:
    return {name: entry.sha256 for name, entry in splits.items()}


class _BuildSide:
    """Graphs of a build, whose splits are columns of texts."""

    def __init__(self, build: Build, splits: Mapping[str, SplitEntry]) -> None:
        store = shared_store(build)
        fields, has_edges = item_fields(store.schema)
        self._assembler = BatchAssembler(store, fields, edges=has_edges, lengths=False)
        columns = {field.attribute: _compared_column(field) for field in fields}
        if has_edges:
            columns[EDGES] = ComparedColumn("edge", "[2, E]", np.dtype(np.int64), 2, is_text=False)
        self._parts = {}
        for name, entry in splits.items():
            split = store.read_split(entry)
            level = "graph"
            parts = split.parts or {}
            if split.part_codes is not None:
                level = "node"
                for part, code in PART_CODES.items():
                    parts[part] = np.flatnonzero(split.part_codes == code)
            rows = int(store.row_count[LEVELS[level]].sum())
            names = np.zeros(rows, f"S{max(map(len, parts))}")
            for part, positions in parts.items():
                names[positions] = part
            texts = names.view(np.uint8).reshape(rows, -1)
            column = f"split {name}"
            columns[column] = ComparedColumn(
                level, f"part of each {level}", texts.dtype, texts.shape[1], is_text=True
            )
            self._parts[column] = texts
        self.columns: Mapping[str, ComparedColumn] = columns
        self.row_count = store.row_count

    def read(self, records: I64) -> dict[str, Array]:
        """Return the rows of graphs (n,) and of their parts."""
        values, _ = self._assembler.gather(records)
        rows = {name: tensor.numpy() for name, tensor in values.items()}
        for name, texts in self._parts.items():
            is_of_nodes = self.columns[name].level == "node"  # of the only graph
            rows[name] = texts if is_of_nodes else texts[records]
        return rows


def _compared_column(field: ItemField) -> ComparedColumn:
    """Return the shape and dtype of an attribute of an item."""
    axes = {"node": ["N"], "edge": ["E"], "graph": []}[field.level]
    if field.level == "graph" and field.form == "axis":
        axes = ["1"]
    shape = f"[{', '.join([*axes, *map(str, field.shape)])}]"
    if field.form in {"text", "number"}:
        shape = field.form
    width = math.prod(field.shape)
    return ComparedColumn(field.level, shape, field.presented, width, field.form == "text")
