"""``ShardedDataset``: a PyTorch Geometric dataset over a build or a part of its split."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import torch
from torch_geometric.data import Data, Dataset

from kmip_data.arrays import I64, Array
from kmip_data.builds.added_columns import AddedColumnCard, find_encoding, read_added_column_card
from kmip_data.builds.home import Build, added_column_names
from kmip_data.errors import Command, IncompleteBuildWarning, UsageError, unknown_name_error
from kmip_data.files.path_errors import absolute_path
from kmip_data.format import targets
from kmip_data.format.card import INCOMPLETE, Card, read_card
from kmip_data.format.schema import Schema, View
from kmip_data.format.split_files import (
    PART_CODES,
    PARTS,
    TRAIN_AND_VAL,
    graph_keys_digest,
    part_name,
)
from kmip_data.reading import gather
from kmip_data.reading.assemble import BatchAssembler, ItemField, item_fields
from kmip_data.reading.batching import collates_by_rows, make_batch, make_data
from kmip_data.reading.store import shared_store
from kmip_data.text import count_with_noun, is_likely_typo, nearest_name, one_line

_OGB_NAMES = {"train": "train", "val": "valid", "test": "test"}  #: OGB's name of each part

#: Attribute of datasets in PyTorch Geometric, OGB or DGL -> the expression to use here.
_EQUIVALENTS = {
    **dict.fromkeys(["data", "_data", "ndata", "edata"], "dataset[0]"),
    **dict.fromkeys(["labels", "label", "targets"], "dataset.y"),
    **dict.fromkeys(["features", "feat"], "dataset.x"),
    **dict.fromkeys(["graphs", "data_list", "copy", "to_list"], "list(dataset)"),
    **dict.fromkeys(["to", "cpu", "cuda"], "[data.to('cpu') for data in dataset]"),
    **dict.fromkeys(["train_mask", "val_mask", "test_mask"], "dataset.get_idx_split()"),
    **dict.fromkeys(["train_idx", "val_idx", "test_idx", "get_split"], "dataset.get_idx_split()"),
    **dict.fromkeys(["metadata", "meta_info", "info", "stats"], "dataset.card"),
    **dict.fromkeys(["path", "folder"], "dataset.build.path"),
    **dict.fromkeys(["loader", "dataloader"], "kmip_data.GraphLoader(dataset, batch_size=32)"),
    "edge_index": "dataset[0].edge_index",
    "slices": "dataset.nodes",
    "num_nodes": "dataset.nodes.sum()",
    "num_edges": "dataset.edges.sum()",
    "num_graphs": "len(dataset)",
    "num_labels": "dataset.num_classes",
    "num_targets": "dataset.num_tasks",
    "splits": "dataset.card.splits",
}


class ShardedDataset(Dataset):  # type: ignore[misc] # PyTorch Geometric is untyped
    """The records of a build, or of one part of a split, as a PyTorch Geometric dataset.

    Items are :class:`torch_geometric.data.Data` with the presented dtypes. They are copies, so a
    transform may change them in place. ``edge_index`` is int64 with sources in row 0 and targets in
    row 1; from a stored neighbour table, its columns are grouped by target, nearest source first.
    An instance holds no open file, can be pickled and can be used after a fork.

    Parameters
    ----------
    path
        A build folder (with ``card.json``), or a :class:`~kmip_data.builds.home.Build`.
    split
        ``"train"``, ``"val"`` (also ``"valid"`` and ``"validation"``), ``"test"``, or
        ``"trainval"`` for the first two together; ``None`` for all records in source order. A
        dataset of one graph always returns its graph, with boolean ``train_mask``, ``val_mask`` and
        ``test_mask``.
    transform
        Applied to each item when it is read.
    split_name
        Name of a split of the build (a key of ``card.splits``); ``None`` for the default split.
    columns
        Attributes to read; ``None`` for all. A column added by ``kmip-data encode`` (``"rwse20"``)
        adds its attributes; if only such columns are named, items also have all stored attributes.
    views
        Additional attributes that are slices of stored columns.
    edge_lengths
        Compute ``edge_attr``, float32 [E, 1]: the Euclidean length of each edge.

    Raises
    ------
    UsageError, DamagedInput
        A split, part or column does not exist; a card, shard or split file is missing or damaged.

    Examples
    --------
    >>> import kmip_data
    >>> dataset = kmip_data.ShardedDataset("built/s3dis-k32-0123456789ab", split="train")  # doctest: +SKIP
    >>> dataset[0]  # doctest: +SKIP
    Data(x=[4096, 9], edge_index=[2, 131072], y=[4096], pos=[4096, 3])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Build,
        split: str | None = None,
        transform: Callable[[Data], Data] | None = None,
        *,
        split_name: str | None = None,
        columns: Sequence[str] | None = None,
        views: Sequence[View] = (),
        edge_lengths: bool = False,
    ) -> None:
        if isinstance(path, Build):
            build = path
        else:
            folder = absolute_path(path, "build folder")
            build = Build(folder, read_card(folder))
        # Results on part of a dataset must not pass for results on the published dataset.
        if build.card.coverage == INCOMPLETE:
            graphs = count_with_noun(build.card.counts["graphs"], "graph")
            warnings.warn(
                f"{build.path} has {graphs}, {INCOMPLETE}; see {Command('kmip-data', 'info', build.path)}",
                IncompleteBuildWarning,
                stacklevel=2,
            )
        if transform is not None and not callable(transform):
            raise UsageError(
                f"transform is of type {type(transform).__name__}, not a function of one graph.",
                steps="several transforms in order: torch_geometric.transforms.Compose([first, second])",
            )
        self.build = build
        self.split = part_name(split)
        self.split_name = split_name or self.card.default_split or None

        # Added columns have separate files, next to the shards.
        attributes, added = _resolve_columns(build, columns, views)
        self._store = shared_store(build, added)
        fields, edges = item_fields(self._store.schema, attributes, views)
        if edge_lengths and self._store.schema.edges == "none":
            raise UsageError(f"Edge lengths need edges, and {build.path} has none.")
        self._assembler = BatchAssembler(
            self._store,
            fields,
            edges=edges,
            lengths=edge_lengths,
        )

        # Record numbers of this part; ``None`` for all records in source order.
        self._records: I64 | None = None
        self._masks: dict[str, torch.Tensor] = {}
        self._read_part(self.split)
        super().__init__(str(build.path), transform)

    def _read_part(self, part: str | None) -> None:
        """Read the records of a part from the split file, or the masks of a single graph."""
        names = list(self.card.splits)
        info = Command("kmip-data info", self.build.path)
        if self.split_name is not None and self.split_name not in names:
            raise unknown_name_error("split", self.split_name, names, command=info)
        # Without a part, only a single graph needs the split, for its masks.
        if part is None and (len(self._store) != 1 or self.split_name is None):
            return
        if self.split_name is None:
            raise UsageError(
                f"{self.card.dataset} has no splits.",
                steps="split=None, for all records",
            )

        # Use the parts in the file: a saved dataset may have other parts than train, val and test.
        split = self._store.read_split(self.card.splits[self.split_name])
        available_parts = list(PART_CODES if split.parts is None else split.parts)
        parts = [] if part is None else [part]
        if part == TRAIN_AND_VAL and part not in available_parts:
            parts = ["train", "val"]
        if any(name not in available_parts for name in parts):
            raise unknown_part_error(part, available_parts)

        # A split of nodes becomes masks; a split of graphs becomes the records of the part.
        if split.part_codes is not None:
            code = torch.from_numpy(split.part_codes)
            self._masks = {f"{name}_mask": code == value for name, value in PART_CODES.items()}
        elif parts and split.parts is not None:
            self._records = np.concatenate([split.parts[name] for name in parts])
            if not len(self._records):
                message = (
                    f"the {part} part of {self.split_name} of {self.card.dataset} has no graphs"
                )
                warnings.warn(one_line(message), stacklevel=4)

    @property
    def card(self) -> Card:
        """Card of the build: license, citation, parameters, counts and statistics."""
        return self.build.card

    @property
    def schema(self) -> Schema:
        """Columns, views and edge layout of the shards."""
        return self._store.schema

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, indexed by label."""
        return list(self.card.class_names)

    has_download = has_process = False  #: PyTorch Geometric calls neither method

    def download(self) -> None:
        """Raise ``UsageError``, as :meth:`process` does."""
        self.process()

    def process(self) -> None:
        """Raise ``UsageError``: a build is finished before it is opened."""
        raise UsageError(
            "A dataset is opened from a finished build: it downloads and processes nothing.",
            steps="kmip_data.open(…, transform=…), on reading; or kmip_data.save(graphs, FOLDER), once",
        )

    @property
    def processed_dir(self) -> str:
        """Folder of the build."""
        return str(self.build.path)

    @property
    def processed_file_names(self) -> list[str]:
        """Shards of the build."""
        return [entry.file for entry in self.card.shards]

    @property
    def split_digest(self) -> str | None:
        """SHA-256 over the keys of this part; ``None`` without a part."""
        if self.split is None or self.split_name is None:
            return None
        parts = self.card.splits[self.split_name].parts
        if self.split in parts:
            return parts[self.split].digest
        if self._records is None:  # the nodes of a single graph
            return None
        keys = self._store.keys()
        return graph_keys_digest([keys[record] for record in self._records.tolist()])

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.card.dataset

    @property
    def task_type(self) -> str | None:
        """Task as named by OGB; ``None`` without targets.

        One of ``"multiclass classification"``, ``"binary classification"`` (also for multilabel
        targets), ``"regression"`` and ``"link prediction"``.
        """
        return targets.task_type(self.card.schema_)

    @property
    def num_tasks(self) -> int:
        """Number of targets per row: labels or regression values; 1 for classes and links."""
        return targets.num_tasks(self.card.schema_)

    @property
    def eval_metric(self) -> str | None:
        """Name of the dataset's metric, for :func:`kmip_data.models.evaluate_predictions`."""
        return targets.eval_metric(self.card.schema_, self.card.manifest)

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        """Return the positions of each part in this dataset, int64; for a single graph, of its nodes.

        The keys are OGB's: ``train``, ``valid``, ``test``. Raises ``UsageError`` for a dataset of
        one part or without a split.
        """
        positions_of_parts = {}
        if self._masks:
            for part, name in _OGB_NAMES.items():
                positions_of_parts[name] = self._masks[f"{part}_mask"].nonzero().flatten()
            return positions_of_parts
        if self.split is not None:
            raise UsageError(
                f"get_idx_split needs a dataset of all records; this one has only the {self.split} part.",
                steps="open it with split=None",
            )
        if self.split_name is None:
            raise UsageError(f"{self.name} has no split.", steps="kmip_data.save(…, split=…)")

        split = self._store.read_split(self.card.splits[self.split_name])
        parts = split.parts or {}
        # Translate records to positions: ``pre_filter`` may have removed some records.
        position_of_record = np.full(len(self._store), -1, np.int64)
        position_of_record[self.records] = np.arange(len(self))
        for part, name in _OGB_NAMES.items():
            positions = position_of_record[parts.get(part, np.empty(0, np.int64))]
            positions_of_parts[name] = torch.from_numpy(positions[positions >= 0])
        return positions_of_parts

    @property
    def records(self) -> I64:
        """Record number of each item, in source order of the build, int64 (len,)."""
        positions = np.fromiter(self.indices(), np.int64, len(self))
        if self._records is None:
            return positions
        return self._records[positions]

    @property
    def assembler(self) -> BatchAssembler | None:
        """Gatherer of whole batches; ``None`` if items must be read one by one.

        That applies with a transform or masks, in a subclass that overrides ``get``, and if PyTorch
        Geometric has a special batching rule for the name of an attribute.
        """
        # A batch gathered by rows would never call the user's code for one item.
        overrides_get = type(self).get is not ShardedDataset.get
        if self.transform is not None or self._masks or overrides_get:
            return None
        return self._assembler if collates_by_rows(self._assembler.fields) else None

    @property
    def keys(self) -> list[str]:
        """Upstream key of each item."""
        keys = self._store.keys()
        return [keys[record] for record in self.records.tolist()]

    @property
    def nodes(self) -> I64:
        """Number of nodes of each item, int64 (len,), before any transform."""
        return self._row_counts(gather.NODE)

    @property
    def edges(self) -> I64:
        """Number of edges of each item, int64 (len,), before any transform."""
        return self._row_counts(gather.EDGE)

    def _row_counts(self, level: int) -> I64:
        counts: I64 = self._store.row_count[level, self.records]
        return counts

    def __repr__(self) -> str:
        name = f"{self.card.dataset!r} {self.card.coverage}".rstrip()
        parts = [name, count_with_noun(len(self), "graph")]
        if self.split is not None:
            parts.append(f"split={self.split!r}, split_name={self.split_name!r}")
        k = self.card.parameters.get("k")
        if k is not None:
            parts.append(f"k={k}")
        return f"{type(self).__name__}({', '.join(parts)})"

    if TYPE_CHECKING:  # PyTorch Geometric's annotations are wider: a dataset or a ``BaseData``

        @overload
        def __getitem__(self, idx: int | np.integer[Any]) -> Data: ...

        @overload
        def __getitem__(self, idx: slice | Sequence[int] | torch.Tensor | Array) -> Self: ...

        def __getitem__(self, idx: object) -> object: ...

        def __iter__(self) -> Iterator[Data]: ...

    else:

        def __getitem__(self, idx: Any) -> Any:
            """Return one item, or a dataset of the selected items, as PyTorch Geometric does."""
            if isinstance(idx, str):
                step = "dataset[0]"
                if self._find_field(idx):
                    step = f"dataset.{idx}"
                elif part_name(idx) in PARTS:
                    step = f"kmip_data.open({str(self.build.path)!r}, split={idx!r})"
                raise IndexError(f"There is no item {idx!r}: items are numbered. Use {step}")
            try:
                return super().__getitem__(idx)
            except IndexError:
                container = "the build" if self.split is None else f"the part {self.split}"
                raise IndexError(
                    f"There is no item {idx}: {container} has {count_with_noun(len(self), 'item')}, from 0."
                ) from None

    def len(self) -> int:
        """Return the number of records in the part, before any selection."""
        if self._records is None:
            return len(self._store)
        return int(self._records.size)

    def get(self, idx: int) -> Data:
        """Return record ``idx`` of the part, without the transform."""
        record = idx if self._records is None else int(self._records[idx])
        data = make_data(self._assembler, record)
        # Copy the masks like all arrays of an item: a transform may write to them.
        for name, mask in self._masks.items():
            data[name] = mask.clone()
        return data

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """``train_mask``, ``val_mask`` and ``test_mask``, bool (N,); empty unless the dataset is one graph."""
        return dict(self._masks)

    def mapped_edges(self, idx: int) -> Array | None:
        """Return the stored edge index (2, E) of an item, a view of the mapped file.

        Returns ``None`` if :meth:`select_rows` cannot read the item.
        """
        return self._assembler.mapped_edges(int(self.records[idx]))

    def select_rows(self, idx: int, nodes: I64, edges: I64) -> Data:
        """Return an item with only the given nodes (n,) and edges (e,), read from the mapped files.

        It has neither edge index nor masks. The transform is applied and must treat each row
        independently.
        """
        data = Data(**self._assembler.select_rows(int(self.records[idx]), nodes, edges))
        return data if self.transform is None else self.transform(data)

    @property
    def num_node_features(self) -> int:
        """Number of features per node: columns of ``x``."""
        if self.transform is not None:
            return int(super().num_node_features)
        return self._feature_count("x")

    @property
    def num_edge_features(self) -> int:
        """Number of features per edge: columns of ``edge_attr``."""
        if self.transform is not None:
            return int(super().num_edge_features)
        return 1 if self._assembler.lengths else self._feature_count("edge_attr")

    @property
    def num_classes(self) -> int:
        """Number of classes, from the schema or else as counted by PyTorch Geometric."""
        label = self._find_field("y")
        if label is None or self.transform is not None:
            return int(super().num_classes)
        if label.num_classes is not None:
            return label.num_classes
        # The schema has no number of classes: read all labels.
        values = self._values_of_all_records(label)
        return int(self._infer_num_classes(values)) if values.numel() else 0

    if not TYPE_CHECKING:  # type checkers must still report misspelt attributes

        def __getattr__(self, name: str) -> torch.Tensor:
            """Return an attribute of all graphs, such as ``y``, in one tensor, without the transform.

            Works as in PyTorch Geometric's ``InMemoryDataset``, but reads only this attribute.
            """
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if "_assembler" in self.__dict__:  # missing during unpickling
                if field := self._find_field(name):
                    return self._values_of_all_records(field)
                if name in self._masks or (name == "edge_index" and len(self) == 1):
                    return self.get(0)[name]
                columns = [field.attribute for field in self._assembler.fields]
                if equivalent := _EQUIVALENTS.get(name):
                    message += f": use {equivalent}"
                elif close := _likely_name(name, [*columns, *dir(type(self))]):
                    message += f". Did you mean {close!r}?"
                message += f"; columns of all graphs: {', '.join(columns)}"
            raise AttributeError(message)

    def _values_of_all_records(self, field: ItemField) -> torch.Tensor:
        assembler = BatchAssembler(self._store, [field], edges=False, lengths=False)
        values: torch.Tensor = make_batch(assembler, self.records)[field.attribute]
        return values

    def _find_field(self, attribute: str) -> ItemField | None:
        fields = self._assembler.fields
        return next((field for field in fields if field.attribute == attribute), None)

    def _feature_count(self, attribute: str) -> int:
        field = self._find_field(attribute)
        if field is None:
            return 0
        return field.shape[-1] if field.shape else 1


def _likely_name(name: str, known: Sequence[str]) -> str | None:
    """Return the public name of which ``name`` is a likely typo, if any."""
    close = nearest_name(name, [word for word in known if not word.startswith("_")])
    return close if close and is_likely_typo(name, close) else None


def unknown_part_error(part: object, parts: Sequence[str]) -> UsageError:
    """Return the error for a part that a split does not have."""
    return unknown_name_error("part of the split", str(part), parts, command="split=None, for all")


def _resolve_columns(
    build: Build, names: Sequence[str] | None, views: Sequence[View]
) -> tuple[list[str] | None, list[AddedColumnCard]]:
    """Resolve the argument ``columns`` to stored attributes (``None`` for all) and added columns.

    A single string is one name. If only added columns are named, all stored attributes are
    included. Raises ``UsageError`` if two columns have the same attribute or a name is unknown.
    """
    if names is None:
        return None, []
    names = [names] if isinstance(names, str) else names
    # A stored attribute takes precedence over an added column of the same name.
    schema = build.card.schema_
    stored = {*schema.attributes}
    stored.update(view.attribute for view in schema.views)
    if schema.edges != "none":
        stored.add("edge_index")

    finished = added_column_names(build.path)
    available = stored.union(finished, (view.attribute for view in views))
    attributes = []
    added = []
    for name in dict.fromkeys(names):
        if name in finished and name not in stored:
            added.append(read_added_column_card(build, name))
        elif name not in available:
            command = Command("kmip-data info", build.path)
            if find_encoding(name) is not None:
                command = Command("kmip-data encode", build.name_or_path, name)
            raise unknown_name_error("column", name, sorted(available), command=command)
        else:
            attributes.append(name)
    if not added:
        return attributes, []

    # columns=["rwse20"] means complete items with one more column.
    attributes = attributes or sorted(stored - schema.split_attributes)
    for card in added:
        for column in card.schema_.columns:
            attribute = column.attribute
            if attribute in attributes or attribute in stored:
                listed = ", ".join(names)
                raise UsageError(f"Two columns give the attribute {attribute!r}: {listed}.")
            attributes.append(attribute)
    return attributes, added
