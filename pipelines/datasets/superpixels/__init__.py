"""Your own images as superpixel graphs, constructed like LRGB's, with masks or labels of pictures.

Raw layout: ``images/`` and ``masks/`` with equal file names, except for suffixes; ``beside/`` has
legends and tables. Facts and deviations: ``docs/pictures.md``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, U8, Array
from kmip_data.builds.home import Home
from kmip_data.columns.conform_to_schema import conform_rows
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import NO_CLASS, stored_labels
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.card import Card
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema, View
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column, kinds_of_measurements
from kmip_data.pipelines.companion_files.companions import (
    COMPANION_SUFFIXES,
    Companions,
    companions_beside,
    find_companions,
)
from kmip_data.pipelines.companion_files.item_columns import label_column, label_row
from kmip_data.pipelines.datasets.superpixels import picture_graphs
from kmip_data.pipelines.datasets.superpixels.mask_files import (
    IMAGE_FOLDER,
    MASK_FOLDER,
    find_masks,
    pair_with_masks,
)
from kmip_data.pipelines.datasets.superpixels.parameters import (
    InferredPictures,
    InferredSuperpixelParams,
    OwnSuperpixelParams,
    infer_pictures,
)
from kmip_data.pipelines.described_parameters import DescribedPipeline, DescribedSource
from kmip_data.pipelines.domains.cloud_columns import CloudOptions
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, spool_graphs
from kmip_data.pipelines.own_pipeline import (
    classes_as_text,
    escaped_key,
    files_below,
    parse_class_values,
    skip_reason,
)
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.pipelines.units_and_splits import units_of_rows
from kmip_data.runtime.parallel import prepare_ahead

BESIDE_FOLDER = "beside"
MAX_PICTURES_PER_UNIT = 256
_SPOOL_FOLDER = "pictures"
_DECODING_THREADS = 8
MAX_MASK_VALUE = 65_535
MIN_UNITS = 32  #: minimum units if there are enough pictures, to share among processes


class SuperpixelSource(DescribedSource):
    """Source of superpixels."""

    images: Path | None = Field(default=None, description="folder of pictures")
    masks: Path | None = Field(
        default=None,
        description="folder of masks, named like their pictures; without masks, pictures have labels",
    )

    def files(self) -> dict[str, Path]:
        """Return the files to copy, by their names in the raw copy.

        Raises ``UsageError`` if there are none.
        """
        files: dict[str, Path] = {}
        folders = {IMAGE_FOLDER: self.images}
        if self.masks is not None:
            folders[MASK_FOLDER] = self.masks
        for name, folder in folders.items():
            found, reasons = files_below(
                folder, name, picture_graphs.PICTURE_SUFFIXES, COMPANION_SUFFIXES
            )
            files |= {f"{name}/{path}": found[path] for path in found}
            self._ignored_files |= {f"{name}/{path}": reasons[path] for path in reasons}
        if self.masks is None:
            for name in find_masks(files):
                files[name.replace(IMAGE_FOLDER, MASK_FOLDER, 1)] = files.pop(name)
        pictures = [name for name in files if name.startswith(f"{IMAGE_FOLDER}/")]
        if self.images is None:
            return files
        companions, reasons = companions_beside(self.images, pictures)
        self._ignored_files |= {f"{BESIDE_FOLDER}/{name}": reasons[name] for name in reasons}
        return files | {f"{BESIDE_FOLDER}/{name}": companions[name] for name in sorted(companions)}

    @property
    def origin(self) -> str:
        """Names of the folders, for the card."""
        return " and ".join(path.resolve().name for path in (self.images, self.masks) if path)


class DecodedPicture(NamedTuple):
    """Picture and mask of equal size, as arrays."""

    pixels: U8  #: (H, W, 3), red, green and blue
    classes: U8  #: (H, W), ``picture_graphs.VOID`` for pixels without a class

    def as_graph(self, key: str) -> GraphRecord:
        """Return the arrays as a graph without edges, for a spool."""
        columns: dict[str, Array] = {
            "size": np.array(self.classes.shape),
            "pixels": self.pixels.reshape(-1, 3),
            "classes": self.classes.reshape(-1),
        }
        return GraphRecord(key=key, num_nodes=self.classes.size, columns=columns)

    @classmethod
    def from_block(cls, block: GraphBlock) -> DecodedPicture:
        """Return the picture that :meth:`as_graph` has spooled alone."""
        size = block.columns["size"]
        pixels = block.columns["pixels"].reshape(*size, 3)
        return cls(pixels, block.columns["classes"].reshape(size))


class OwnSuperpixelPipeline(DescribedPipeline[InferredSuperpixelParams]):
    """Pipeline of ``superpixels``, for datasets of any name."""

    version = 5
    extra = "images"
    background_class = 0
    Params = OwnSuperpixelParams
    Source = SuperpixelSource

    #: folder of the raw copy -> name of the user's folder
    folder_names: Mapping[str, str] = {}

    def store_raw_files(
        self,
        source: SuperpixelSource,
        params: InferredSuperpixelParams,
        home: Home,
        **options: Any,
    ) -> tuple[RawCopy, bool]:
        """Copy the files, and remember the names of their folders."""
        folders = {IMAGE_FOLDER: source.images, MASK_FOLDER: source.masks or source.images}
        self.folder_names = {
            name: folder.resolve().name for name, folder in folders.items() if folder is not None
        }
        return super().store_raw_files(source, params, home, **options)

    def _shown(self, name: str) -> str:
        """Return the name of a file in the raw copy as the user knows it."""
        folder, slash, path = name.partition("/")
        if folder == BESIDE_FOLDER:
            return path
        return f"{self.folder_names.get(folder, folder)}{slash}{path}"

    def _companions(
        self, raw: RawCopy, pairs: Iterable[tuple[str, str | None]], params: OwnSuperpixelParams
    ) -> Companions:
        """Return the files next to the pictures."""
        options = CloudOptions(encoding=params.encoding, decimal=params.decimal)
        pictures = [picture for picture, _ in pairs]
        companions = find_companions(raw.path, raw.members, pictures, options)
        companions.leave_out(params.ignore)
        return companions

    def schema(self, params: InferredSuperpixelParams) -> Schema:
        """Return LRGB's columns: 14 features, edge features of the rule, and the class."""
        inferred = params.inferred
        boundary = ("mean edge strength", "boundary [pixels]")
        fields = ("distance [pixels]",) if params.edges == "knn" else boundary
        columns = [
            *columns_of(self.manifest),
            feature_column("edge/attr", fields, "of the pair of superpixels"),
        ]
        if inferred.has_masks:
            doc = f"class of the mask at the rounded centroid; -1 if most pixels are {params.void}, no class"
            column = class_column("node/y", len(params.class_values), doc)
            columns.append(replace(column, stored="int16", low=NO_CLASS))
        elif inferred.label is not None:
            columns.append(
                label_column(
                    inferred.label, "graph", inferred.classes, is_complete=inferred.is_complete
                )
            )
        columns += inferred.split_columns
        pos = View(attribute="pos", source="node/x", start=12, stop=14)
        return Schema(
            columns=tuple(columns),
            views=(pos,),
            max_nodes=self.manifest.max_nodes,
            key_length=160,
        )

    def with_inferred(
        self, params: OwnSuperpixelParams, prepared: Prepared
    ) -> InferredSuperpixelParams:
        """Return the parameters with the labels of the pictures."""
        inferred = InferredPictures.model_validate_json(json.dumps(prepared.facts["inferred"]))
        return InferredSuperpixelParams.from_params(params, inferred=inferred)

    def prepare(self, raw: RawCopy, params: OwnSuperpixelParams, workdir: Path) -> Prepared:
        """Decode pictures and masks once into a spool of arrays, before any picture is segmented.

        Labels of pictures without masks are inferred.

        Raises ``DamagedInput`` naming every unusable pair, unless they are skipped.
        """
        if params.edges != "knn":
            params.refuse_unread({"k": f"edges={params.edges} has no neighbours to count"})
        has_masks = _has_masks(raw.members)
        num_classes = len(params.class_values) if has_masks else 0
        if has_masks and params.class_name and len(params.class_name) != num_classes:
            num_names = len(params.class_name)
            raise UsageError(
                f"class_name has {num_names} names for {num_classes} classes.",
                steps=Setting(classes=num_names),
            )
        pairs = pair_with_masks(raw.members)
        companions = self._companions(raw, pairs, params)
        companions.ignored |= {
            name: reason
            for name, reason in self.ignored_files.items()
            if name.startswith(f"{BESIDE_FOLDER}/")
        }
        pairs_to_build = [pairs[row] for row in params.positions_to_build(len(pairs))]
        values: set[int] = set()
        unusable: dict[str, DamagedInput] = {}
        positions: dict[str, int] = {}  # picture -> its position in the spool

        def decode(names: tuple[str, str | None]) -> tuple[Array, DecodedPicture | DamagedInput]:
            mask_values = np.empty(0, np.int64)
            try:
                if not has_masks:
                    pixels = self._read_picture(raw.path, names[0], None, params)
                    classes = np.zeros(pixels.shape[:2], np.uint8)
                    return mask_values, DecodedPicture(pixels, classes)
                mask = self._read_mask(raw.path, *names)
                mask_values = np.unique(mask)
                pixels = self._read_picture(raw.path, names[0], mask, params)
                classes = picture_graphs.classes_from_values(
                    mask, params.class_values, params.void, self._shown(names[1] or "")
                )
            except DamagedInput as error:
                return mask_values, error
            return mask_values, DecodedPicture(pixels, classes)

        def usable_pictures() -> Iterator[GraphRecord]:
            results = prepare_ahead(
                pairs_to_build, decode, threads=_DECODING_THREADS, depth=_DECODING_THREADS
            )
            for (picture, _), (mask_values, decoded) in zip(pairs_to_build, results, strict=True):
                values.update(mask_values.tolist())
                if isinstance(decoded, DamagedInput):
                    unusable[picture] = decoded
                    continue
                positions[picture] = len(positions)
                yield decoded.as_graph(str(positions[picture]))

        spool_graphs(workdir / _SPOOL_FOLDER, usable_pictures())
        for error in unusable.values():
            if isinstance(error, picture_graphs.UnknownClass):
                # One advice, which fits the values of all masks.
                error.steps = [picture_graphs.suggest_classes_option(values, params.void)]
        self.stop_or_skip_all(unusable.values(), len(pairs_to_build), params)
        if has_masks and values == {0, params.void} and params.void not in params.class_values:
            raise DamagedInput(
                f"The masks have the values 0 and {params.void}, but {params.void} marks pixels without a class.",
                steps=Setting(classes=f"0,{params.void}"),
            )
        built = [picture for picture, _ in pairs_to_build]
        inferred, values_by_column = infer_pictures(built, companions, params, has_masks=has_masks)
        fields = [field for column in inferred.split_columns for field in column.fields]
        used = {inferred.label or "", *fields}
        legend = inferred.summary.get("legend", "")
        ignored_files = self._ignored_of_copy(raw.members, pairs, companions, used, legend)
        ignored = [f"{self._shown(name)}: {reason}" for name, reason in ignored_files.items()]
        inferred.summary["ignored"] = ignored
        facts = {
            "pictures": [picture for picture, _ in pairs],
            "positions": positions,
            "unusable": {picture: skip_reason(error) for picture, error in unusable.items()},
            "inferred": inferred.model_dump(mode="json"),
            "values": values_by_column,
        }
        return Prepared(workdir, facts)

    def _ignored_of_copy(
        self,
        members: Iterable[str],
        pairs: Sequence[tuple[str, str | None]],
        companions: Companions,
        used: Collection[str],
        legend: str,
    ) -> dict[str, str]:
        """Return the files and columns without use, with reasons.

        ``used`` are columns of tables, and ``legend`` is the file that names the classes.
        """
        paired = {name for pair in pairs for name in pair}
        ignored_files = {}
        for name in sorted(members):
            if name.lower().endswith(picture_graphs.PICTURE_SUFFIXES) and name not in paired:
                ignored_files[name] = "a mask without a picture"
        return {**ignored_files, **companions.unused(used, legend), **self.ignored_files}

    def card_additions(self, prepared: Prepared, params: InferredSuperpixelParams) -> CardAdditions:
        """Return the ignored files and the kinds of features: measurements and positions."""
        inferred = params.inferred
        names = None if inferred.has_masks else self.class_names(params) or None
        parameters = params.described(
            label=inferred.label, classes=classes_as_text(inferred.classes), class_name=names
        )
        files = {**inferred.summary, "parameters": parameters}
        kinds = kinds_of_measurements(self.schema(params))
        return CardAdditions({"files": files, "kinds": kinds}, inferred.summary.get("warnings", []))

    def class_names(self, params: InferredSuperpixelParams) -> tuple[str, ...]:
        """Return the given class names, or the listed mask values, or the labels of pictures."""
        inferred = params.inferred
        if not inferred.has_masks:
            return (
                params.class_name or inferred.class_names or tuple(map(str, inferred.classes or ()))
            )
        return params.class_name or tuple(map(str, parse_class_values(params.classes)))

    def units(self, prepared: Prepared, params: InferredSuperpixelParams) -> list[Unit]:
        """Assign pictures in name order, in units small enough for every process to have work."""
        rows = params.positions_to_build(len(prepared.facts["pictures"]))
        size = min(max(-(-len(rows) // MIN_UNITS), 1), MAX_PICTURES_PER_UNIT)
        return units_of_rows(rows, size, "pictures")

    def records(
        self, prepared: Prepared, unit: Unit, params: InferredSuperpixelParams
    ) -> Iterator[GraphRecord | SkippedRecord]:
        """Yield the graphs of a unit's pictures."""
        spool = SpooledGraphs(prepared.path / _SPOOL_FOLDER)
        for row in unit.selection["rows"]:
            picture = prepared.facts["pictures"][row]
            key = picture_key(picture)
            if picture in prepared.facts["unusable"]:
                yield SkippedRecord(key, prepared.facts["unusable"][picture])
                continue
            (block,) = spool.blocks([prepared.facts["positions"][picture]])
            try:
                values = {
                    column: by_picture[picture]
                    for column, by_picture in prepared.facts["values"].items()
                }
                yield self._picture_record(key, DecodedPicture.from_block(block), values, params)
            except DamagedInput as error:
                yield self.stop_or_skip(key, error, params)

    def _picture_record(
        self,
        key: str,
        picture: DecodedPicture,
        values: Mapping[str, Any],
        params: InferredSuperpixelParams,
    ) -> GraphRecord:
        """Return the graph of one picture; ``DamagedInput`` if its values have no place in it.

        ``values`` are those of its label, part and group.
        """
        pixels, classes = picture
        # The steps of LRGB's script.
        segments = picture_graphs.segment_superpixels(pixels, params.superpixels)
        edge_index, attr = picture_graphs.connect_superpixels(
            pixels, segments, params.edges, params.k
        )
        x = picture_graphs.superpixel_features(pixels, segments)
        rows: dict[str, Array] = {
            "node/x": x.astype(np.float16),
            "edge/attr": attr.astype(np.float32),
            "node/y": picture_graphs.superpixel_labels(classes, segments),
        }
        for column_key, value in values.items():
            rows[column_key] = np.array([value])
        if params.inferred.label is not None:
            label = label_row(values["graph/y"])
            rows["graph/y"] = stored_labels(label, params.inferred.classes)

        schema = self.schema(params)
        columns = {}
        for column in schema.columns:
            stored = conform_rows(rows[column.key], column, key)
            columns[column.key] = stored[0] if column.level == "graph" else stored
        return GraphRecord(
            key=key,
            num_nodes=len(x),
            columns=columns,
            edge_index=edge_index.astype(schema.index_dtype),
        )

    def _read_mask(self, folder: Path, picture: str, mask: str | None) -> I64:
        if mask is None:
            raise DamagedInput(
                f"{self._shown(picture)} has no mask in {self._shown(MASK_FOLDER)}.",
                steps="name masks like their pictures, or with _mask, _label or _gt behind it",
            )
        return picture_graphs.read_mask(folder / mask, self._shown(mask))

    def _read_picture(
        self, folder: Path, name: str, mask: I64 | None, params: OwnSuperpixelParams
    ) -> U8:
        """Read a picture, which must have the size of its mask, if any."""
        pixels = picture_graphs.read_picture(
            folder / name,
            self._shown(name),
            white=params.white,
            exif=params.exif or ("apply" if mask is None else None),
            size=() if mask is None else mask.shape,
        )
        if mask is not None and mask.shape != pixels.shape[:2]:
            sizes = "{1} × {0} pixels, not {3} × {2}".format(*mask.shape, *pixels.shape)
            raise DamagedInput(
                f"The mask of {self._shown(name)} differs in size from its picture: {sizes}."
            )
        return pixels

    def pictures(self, card: Card, raw: Path, keys: Sequence[str]) -> Mapping[str, U8 | None]:
        """Return each picture with its superpixel borders painted, None if it is missing."""
        pictures: dict[str, U8 | None] = dict.fromkeys(keys)
        # Use only the build's raw copy; another one would show other pictures.
        copies = [copy for copy in list_copies(raw) if copy.content_digest == card.content_digest]
        for copy in copies[:1]:
            matched = pair_with_masks(copy.members)
            pairs = {picture_key(picture): (picture, mask) for picture, mask in matched}
            has_masks = _has_masks(copy.members)
            params = OwnSuperpixelParams.model_validate(card.parameters)
            for key in pairs.keys() & keys:
                with contextlib.suppress(DamagedInput):
                    mask = None
                    if has_masks:
                        mask = self._read_mask(copy.path, *pairs[key])
                    picture = self._read_picture(copy.path, pairs[key][0], mask, params)
                    segments = picture_graphs.segment_superpixels(
                        picture, card.parameters["superpixels"]
                    )
                    pictures[key] = picture_graphs.paint_borders(picture, segments)
        return pictures

    def folder_name_pieces(self, params: InferredSuperpixelParams) -> list[str]:
        """Return folder name parts for the edges and non-default values."""
        parts = [f"knn{params.k}" if params.edges == "knn" else params.edges]
        if params.superpixels != 500:
            parts.append(f"sp{params.superpixels}")
        return parts + super().folder_name_pieces(params)


PIPELINE = OwnSuperpixelPipeline


def _has_masks(members: Iterable[str]) -> bool:
    """True if the raw files have masks."""
    return any(name.startswith(f"{MASK_FOLDER}/") for name in members)


def picture_key(picture: str) -> str:
    """Return the record key of a picture: its path in the folder, without suffix."""
    path = PurePosixPath(picture.partition("/")[2])
    return escaped_key(str(path.with_suffix("")), 160)
