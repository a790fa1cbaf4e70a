"""Your own images and masks as superpixel graphs, constructed as in LRGB.

Raw layout of a copy: ``images/`` and ``masks/`` with the same names but for the suffix. Facts and
deviations: ``docs/pictures.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Self

import numpy as np
from pydantic import Field, PrivateAttr, field_validator, model_validator

from kmip_data.arrays import I64, U8, Array
from kmip_data.columns.conform_to_schema import conform_record
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.card import Card
from kmip_data.format.schema import Schema, View
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.pipelines.base import CardAdditions, Prepared, RawFolder, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.datasets.superpixels import graph
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.pipelines.record_assignment import units_of_rows
from kmip_data.pipelines.user_files import (
    OwnParams,
    OwnPipeline,
    escaped_key,
    files_below,
    format_classes_option,
    parse_class_count,
    parse_class_values,
)
from kmip_data.strict_model import Strict

IMAGES = "images"
MASK_FILES = "masks"
LARGEST_UNIT = 256  #: pictures in a shard
_THREADS = 8  #: pictures decoded at a time
#: Fewest shards, if there are enough images, so that processes can share them.
UNITS = 32


class SuperpixelSource(Strict):
    """Source of superpixels."""

    images: Path | None = Field(default=None, description="folder of pictures")
    masks: Path | None = Field(
        default=None, description="folder of masks, each named as its picture"
    )
    _unread: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def unread(self) -> dict[str, str]:
        """Files that are not copied -> reason."""
        return self._unread

    def files(self) -> dict[str, Path]:
        """Return the files to copy, by their names in the raw copy.

        Raises ``UsageError`` if there are none.
        """
        files: dict[str, Path] = {}
        for option, folder in ((IMAGES, self.images), (MASK_FILES, self.masks)):
            pictures, unread = files_below(folder, f"--{option}", graph.SUFFIXES)
            files |= {f"{option}/{name}": path for name, path in pictures.items()}
            self._unread |= {f"{option}/{name}": why for name, why in unread.items()}
        return files

    @property
    def origin(self) -> str:
        """Names of the folders, for the card."""
        return " and ".join(path.resolve().name for path in (self.images, self.masks) if path)


class OwnSuperpixelParams(OwnParams):
    """Parameters that change the records."""

    superpixels: int = Field(
        default=500,
        ge=2,
        le=60_000,
        description="maximum number of superpixels per picture",
    )
    edges: graph.EdgeRule = Field(
        default="rag-boundary",
        description="rag-boundary: superpixels that touch, with edge strength and length of their boundary; "
        "knn: the nearest centroids, with their distance",
    )
    k: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="neighbours per superpixel, with edges=knn",
    )
    classes: str = Field(
        default="21",
        description="number of classes, including background, or their values in the masks, such as 0,255",
    )
    void: int = Field(
        default=255,
        ge=0,
        le=65_535,
        description="value of mask pixels without a class",
    )
    white: float | None = Field(
        default=None,
        gt=0,
        le=2**32,
        description="value of white in pictures of more than 8 bits (default: 1 in floats, 65535 in 16 bits)",
    )
    exif: graph.Exif | None = Field(
        default=None,
        description="orientation in EXIF: apply it or ignore it (default: as the mask's size shows)",
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _classes_as_text(cls, value: object) -> object:
        return format_classes_option(value)

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        parse_class_count(self.classes, graph.MAX_CLASSES)
        return self

    @property
    def codes(self) -> tuple[int, ...]:
        """Value of each class in the masks."""
        return parse_class_values(self.classes) or tuple(range(int(self.classes)))


class ResolvedSuperpixelParams(OwnSuperpixelParams):
    """Parameters with the files that are not used."""

    ignored: tuple[str, ...] = Field(exclude=True)  #: file and reason


class OwnSuperpixelPipeline(OwnPipeline[ResolvedSuperpixelParams]):
    """Pipeline of ``superpixels``, for datasets of any name."""

    version = 4
    extra = "images"
    background_class = 0
    Params = OwnSuperpixelParams
    Source = SuperpixelSource

    def schema(self, params: ResolvedSuperpixelParams) -> Schema:
        """Columns of LRGB: 14 features, edge features by the rule, and the class."""
        boundary = ("mean edge strength", "boundary [pixels]")
        fields = ("distance [pixels]",) if params.edges == "knn" else boundary
        columns = (
            *columns_of(self.manifest),
            feature_column("edge/attr", fields, "of the pair of superpixels"),
            class_column(
                "node/y",
                len(params.codes),
                f"class of the mask at the rounded centroid; {params.void} is none, and no class is 0",
            ),
        )
        pos = View(attribute="pos", source="node/x", start=12, stop=14)
        return Schema(
            columns=columns,
            views=(pos,),
            max_nodes=self.manifest.max_nodes,
            key_length=160,
        )

    def resolve(self, params: OwnSuperpixelParams, raw: RawFolder) -> ResolvedSuperpixelParams:
        """Read all pictures and masks once.

        Raises ``DamagedInput`` that names every pair that cannot be used, unless they are skipped.
        """
        classes = len(params.codes)
        if params.class_name and len(params.class_name) != classes:
            names = len(params.class_name)
            raise UsageError(
                f"class_name has {names} names for {classes} classes.",
                next=f"--set classes={names}",
            )
        # Errors end the build before any picture is segmented.
        pairs = pair_with_masks(raw.members)
        values: set[int] = set()
        unusable: dict[str, DamagedInput] = {}

        def check(names: tuple[str, str | None]) -> tuple[Array, DamagedInput | None]:
            seen = np.empty(0, np.int64)
            try:
                mask = self._read_mask(raw.path, *names)
                seen = np.unique(mask)
                self._read_picture(raw.path, names[0], mask, params)
                graph.classes_of(mask, params.codes, params.void, names[1] or "")
            except DamagedInput as error:
                return seen, error
            return seen, None

        with ThreadPoolExecutor(_THREADS) as pool:
            for (picture, _), (seen, refusal) in zip(pairs, pool.map(check, pairs), strict=True):
                values |= {*seen.tolist()}
                if refusal is not None:
                    unusable[picture] = refusal
        wrong = values - {*params.codes, params.void, -1}
        if wrong and params.on_error == "stop":
            for refusal in unusable.values():
                if "which is not a class" in refusal.message:
                    refusal.next = graph.classes_option(values, params.void)
        self.stop_or_skip_all(unusable, len(pairs), params)
        if values == {0, params.void} and params.void not in params.codes:
            raise DamagedInput(
                f"The masks have the values 0 and {params.void}, and {params.void} marks pixels without a class.",
                next=f"--set classes=0,{params.void}",
            )
        used = {*(picture for picture, _ in pairs), *(mask for _, mask in pairs)}
        unread = {
            name: "a mask without a picture" for name in sorted(raw.members) if name not in used
        }
        unread |= self.unread
        ignored = [f"{name}: {reason}" for name, reason in unread.items()]
        return ResolvedSuperpixelParams.from_params(params, ignored=tuple(ignored))

    def card_additions(self, prepared: Prepared, params: ResolvedSuperpixelParams) -> CardAdditions:
        """Return the files that are not used."""
        return CardAdditions({"files": {"ignored": list(params.ignored)}})

    def prepare(self, raw: RawFolder, params: ResolvedSuperpixelParams, workdir: Path) -> Prepared:
        """Pair images with masks."""
        return Prepared(raw.path, {"pairs": pair_with_masks(raw.members)})

    def class_names(self, params: ResolvedSuperpixelParams) -> tuple[str, ...]:
        """Return the given class names, else the values of the masks that are listed."""
        return params.class_name or tuple(map(str, parse_class_values(params.classes)))

    def units(self, prepared: Prepared, params: ResolvedSuperpixelParams) -> list[Unit]:
        """Assign images in the order of their names."""
        chosen = params.positions_to_build(len(prepared.plan["pairs"]))
        # Small shards of few pictures, so that every process has work; large ones of many.
        size = min(max(-(-len(chosen) // UNITS), 1), LARGEST_UNIT)
        return units_of_rows(chosen, size, "pictures")

    def records(
        self, prepared: Prepared, unit: Unit, params: ResolvedSuperpixelParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the pictures of one unit."""
        for row in unit.items["rows"]:
            picture, mask = prepared.plan["pairs"][row]
            try:
                yield self.picture_record(prepared.path, picture, mask, params)
            except DamagedInput as error:
                yield self.stop_or_skip(key_of_picture(picture), error, params)

    def picture_record(
        self,
        folder: Path,
        picture: str,
        mask: str | None,
        params: ResolvedSuperpixelParams,
    ) -> GraphRecord:
        """Return the graph of one image.

        Raises ``DamagedInput`` if it or its mask is unusable.
        """
        values = self._read_mask(folder, picture, mask)
        pixels = self._read_picture(folder, picture, values, params)
        classes = graph.classes_of(values, params.codes, params.void, mask or "")
        # Segment, connect, describe, label: the steps of LRGB's script.
        segments = graph.segment_superpixels(pixels, params.superpixels)
        edge_index, attr = graph.connect_superpixels(pixels, segments, params.edges, params.k)
        x = graph.superpixel_features(pixels, segments)
        y = graph.superpixel_labels(classes, segments)
        edges = edge_index.astype(self.schema(params).index_dtype)
        record = GraphRecord(
            key=key_of_picture(picture),
            num_nodes=len(x),
            columns={
                "node/x": x.astype(np.float16),
                "edge/attr": attr.astype(np.float32),
                "node/y": y,
            },
            edge_index=edges,
        )
        return conform_record(record, self.schema(params), None)

    def _read_mask(self, folder: Path, picture: str, mask: str | None) -> I64:
        if mask is None:
            raise _missing_mask_error(picture)
        return graph.read_mask(folder / mask, mask)

    def _read_picture(self, folder: Path, name: str, mask: I64, params: OwnSuperpixelParams) -> U8:
        """Return a picture of the size of its mask."""
        pixels = graph.read_picture(
            folder / name,
            name,
            white=params.white,
            exif=params.exif,
            size=mask.shape,
        )
        if mask.shape != pixels.shape[:2]:
            sizes = "{1} × {0} pixels, not {3} × {2}".format(*mask.shape, *pixels.shape)
            raise DamagedInput(f"The mask of {name} differs in size from its picture: {sizes}.")
        return pixels

    def pictures(self, card: Card, raw: Path, keys: Sequence[str]) -> Mapping[str, U8 | None]:
        """Return each picture with the borders of its superpixels."""
        pictures: dict[str, U8 | None] = dict.fromkeys(keys)
        # The build's raw copy may be gone; another one would show other images.
        copies = [copy for copy in list_copies(raw) if copy.content_digest == card.content_digest]
        for copy in copies[:1]:
            pairs = {
                key_of_picture(picture): (picture, mask)
                for picture, mask in pair_with_masks(copy.members)
            }
            params = OwnSuperpixelParams.model_validate(card.parameters)
            for key in pairs.keys() & keys:
                with contextlib.suppress(DamagedInput):
                    mask = self._read_mask(copy.path, *pairs[key])
                    picture = self._read_picture(copy.path, pairs[key][0], mask, params)
                    segments = graph.segment_superpixels(picture, card.parameters["superpixels"])
                    pictures[key] = graph.paint_borders(picture, segments)
        return pictures

    def folder_name_pieces(self, params: ResolvedSuperpixelParams) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        parts = [f"knn{params.k}" if params.edges == "knn" else params.edges]
        if params.superpixels != 500:
            parts.append(f"sp{params.superpixels}")
        return parts + super().folder_name_pieces(params)


PIPELINE = OwnSuperpixelPipeline


def pair_with_masks(members: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return each picture with its mask, by the name without suffix, in the order of the names.

    Raises ``DamagedInput`` where two pictures, or two masks, have one name.
    """
    sides: dict[str, dict[str, str]] = {IMAGES: {}, MASK_FILES: {}}
    # By the path without its suffix: a picture is a JPEG, its mask a PNG.
    for name in sorted(members):
        side, _, rest = name.partition("/")
        if side not in sides:
            continue
        stem = str(PurePosixPath(rest).with_suffix(""))
        other = sides[side].setdefault(stem, name)
        if other != name:
            raise DamagedInput(
                f"Two of the {side} differ only in their suffix: {other} and {name}.",
                next="remove one of them",
            )
    return [
        (picture, sides[MASK_FILES].get(stem)) for stem, picture in sorted(sides[IMAGES].items())
    ]


def key_of_picture(picture: str) -> str:
    """Return the key of a picture: its path below the folder, without suffix."""
    path = PurePosixPath(picture.partition("/")[2])
    return escaped_key(str(path.with_suffix("")), 160)


def _missing_mask_error(picture: str) -> DamagedInput:
    stem = picture.partition("/")[2].rpartition(".")[0]
    return DamagedInput(
        f"{picture} has no mask: no {MASK_FILES}/{stem} with one of {', '.join(graph.SUFFIXES)}."
    )
