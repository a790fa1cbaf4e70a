"""``kmip_data.diff``: tell whether two datasets are the same, and where they first differ."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from torch_geometric.data import Data

from kmip_data.arrays import I64
from kmip_data.builds.home import Build, Home, path_or_none, unused_name
from kmip_data.errors import Command, DamagedInput, KmipDataError, Setting
from kmip_data.files.path_errors import absent_file_error
from kmip_data.format.card import CARD_NAME
from kmip_data.format.split_files import PART_CODES
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.find_builds import find_build
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.reading.assemble import BatchAssembler, item_fields
from kmip_data.reading.batching import make_data
from kmip_data.reading.store import ShardStore, shared_store
from kmip_data.saving.save import save
from kmip_data.text import option_words

Comparable = str | os.PathLike[str] | Build | Iterable[Data]


@dataclass(frozen=True)
class Difference:
    """First differing value of a count, an array, a list of names or a part of a split."""

    subject: str
    values: tuple[object, object]  #: value in A, and in B
    position: tuple[int, ...] = ()  #: position of the value in the array or list
    record: int | None = None  #: position of the record, if the array belongs to one

    def __str__(self) -> str:
        record = "" if self.record is None else f"record {self.record}, "
        position = list(self.position) or ""
        return f"{record}{self.subject}{position}: {self.values[0]!r} / {self.values[1]!r}"


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`diff`."""

    counts: Mapping[str, int]  #: graphs, nodes and edges of A
    #: differences of counts, schema and splits, then the first one of the records
    differences: list[Difference]
    differing_records: int  #: number of records that differ, or that one side lacks

    @property
    def equal(self) -> bool:
        """True if there is no difference."""
        return not self.differences


def diff(
    a: Comparable, b: Comparable, *, home: str | os.PathLike[str] | Home | None = None
) -> Comparison:
    """Compare two datasets: counts, schema, splits, and every array of every record.

    Order counts: the first record of A is compared with the first of B, and so are their nodes and
    edges. Values are equal as numbers, and NaN equals NaN. Names of classes and features, units and
    numbers of classes are compared if both sides have them, and the arrays of a record if both do.
    Keys of records and added columns are not compared.

    Files are compared as ``kmip-data build graphs`` reads them, and other objects as
    :func:`kmip_data.save` stores them, both in a temporary build. Their splits are compared in
    order, without the random ones; those of two builds by name. All bytes of both sides are read,
    one record at a time.

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
        ``equal``, the ``differences``, and the number of ``differing_records``.

    Raises
    ------
    UsageError, DamagedInput, OutOfResources
        A side cannot be read, which the message names A or B.

    Examples
    --------
    >>> import kmip_data
    >>> kmip_data.diff("old/processed/data.pt", "new/processed/data.pt").equal  # doctest: +SKIP
    """
    home = Home.locate(home)
    with tempfile.TemporaryDirectory() as folder:
        store_a = _open_side("A", a, home, Path(folder))
        store_b = _open_side("B", b, home, Path(folder))
        counts = store_a.build.card.counts
        differences = [
            *_differences(counts, store_b.build.card.counts),
            *_differences(_dtypes(store_a), _dtypes(store_b), missing="missing"),
            *_differences(_names(store_a), _names(store_b)),
            *_split_differences(store_a, store_b, Path(folder)),
        ]

        differing_records = 0
        items = zip(_items(store_a), _items(store_b), strict=False)
        for record, (item_a, item_b) in enumerate(items):
            found = next(_differences(item_a, item_b), None)
            if found is not None:
                if not differing_records:
                    differences.append(replace(found, record=record))
                differing_records += 1

    return Comparison(counts, differences, differing_records + abs(len(store_a) - len(store_b)))


def _differences(
    a: Mapping[str, ArrayLike | None],
    b: Mapping[str, ArrayLike | None],
    missing: ArrayLike | None = None,
) -> Iterator[Difference]:
    """Yield the first difference of each subject; one that a side lacks is ``missing``, if given."""
    for subject in {**a, **b}:
        in_a = a.get(subject, missing)
        in_b = b.get(subject, missing)
        if in_a is None or in_b is None:
            continue
        array_a = np.asarray(in_a)
        array_b = np.asarray(in_b)
        if array_a.shape != array_b.shape:
            yield Difference(f"shape of {subject}", (array_a.shape, array_b.shape))
        elif not np.array_equal(array_a, array_b):
            is_unequal = array_a != array_b
            # NaN differs from itself, but not from another NaN.
            is_unequal &= (array_a == array_a) | (array_b == array_b)  # noqa: PLR0124
            if is_unequal.any():
                index = np.unravel_index(is_unequal.argmax(), is_unequal.shape)
                values = (array_a[index].item(), array_b[index].item())
                yield Difference(subject, values, tuple(map(int, index)))


def _dtypes(store: ShardStore) -> dict[str, str]:
    """Return the dtype of each attribute of an item."""
    fields, has_edges = item_fields(store.schema)
    dtypes = {field.attribute: field.presented.name for field in fields}
    return {**dtypes, "edge_index": "int64"} if has_edges else dtypes


def _names(store: ShardStore) -> dict[str, ArrayLike | None]:
    """Return the names of classes, and what the schema says of each column; ``None`` if nothing."""
    names: dict[str, ArrayLike | None] = {"class names": store.build.card.class_names or None}
    for column in store.schema.columns:
        for fact in ("fields", "unit", "num_classes"):
            names[f"{fact} of {column.attribute}"] = getattr(column, fact) or None
    return names


def _split_differences(a: ShardStore, b: ShardStore, folder: Path) -> Iterator[Difference]:
    """Yield the first difference of each part; parts drawn at random say nothing about a file."""
    has_file = any(store.build.path.is_relative_to(folder) for store in (a, b))
    splits_a = _splits(a, drawn_too=not has_file)
    splits_b = _splits(b, drawn_too=not has_file)
    if has_file:  # its splits have other names, or it has none
        splits_b = dict(zip(splits_a, splits_b.values(), strict=False))
        splits_a = {name: splits_a[name] for name in splits_b}
    yield from _differences({"splits": list(splits_a)}, {"splits": list(splits_b)})
    for name in sorted(splits_a.keys() & splits_b):
        for found in _differences(splits_a[name], splits_b[name], missing=[]):
            yield replace(found, subject=f"split {name}, {found.subject}")


def _splits(store: ShardStore, *, drawn_too: bool) -> dict[str, dict[str, I64]]:
    """Return the records or nodes (n,) of each part of each split, the default split first."""
    splits = {}
    default = store.build.card.default_split
    for name, entry in sorted(store.build.card.splits.items(), key=lambda item: item[0] != default):
        if drawn_too or "split_seed" not in entry.parameters:
            split = store.read_split(entry)
            splits[name] = split.parts or {
                part: np.flatnonzero(split.part_codes == code) for part, code in PART_CODES.items()
            }
    return splits


def _items(store: ShardStore) -> Iterator[dict[str, ArrayLike]]:
    """Yield the attributes of the item of each record."""
    fields, has_edges = item_fields(store.schema)
    assembler = BatchAssembler(store, fields, edges=has_edges, lengths=False)
    for record in range(len(store)):
        yield make_data(assembler, record).to_dict()


def _open_side(side: str, source: Comparable, home: Home, folder: Path) -> ShardStore:
    """Open the build that a side is, or one made in ``folder``; errors name the side."""
    try:
        return shared_store(_build_of_side(side, source, home, folder))
    except KmipDataError as error:
        error.message = f"{side} cannot be compared: {error.message}"
        raise


def _build_of_side(side: str, source: Comparable, home: Home, folder: Path) -> Build:
    if isinstance(source, Build):
        return source
    if not isinstance(source, str | os.PathLike):
        with warnings.catch_warnings(action="ignore"):  # about features that are not finite
            return save(source, folder / side, label=NO_LABEL)
    path = path_or_none(source, home)
    if path is None or (path / CARD_NAME).is_file():
        return find_build(source, home=home)
    if not path.exists():
        raise absent_file_error(path, "check the path of the file or build")
    return _build_of_files(side, path, home, folder)


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
        settings = [step for step in error.steps if isinstance(step, Setting)]
        if settings:
            name = unused_name(path.stem, home)
            template = "kmip-data build graphs --name {} --archive {}"
            builds = [
                Command(template, name, path, *option_words(setting.values)) for setting in settings
            ]
            error.steps = [*builds, f"then compare the build {name}"]
        raise error from None
