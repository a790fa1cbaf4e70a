"""Your own images and masks as superpixel graphs, constructed as in LRGB.

Raw layout of a copy: ``images/`` and ``masks/`` with the same names but for the suffix. Facts and
deviations: ``docs/own-data.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from pydantic import Field, PrivateAttr

from kmip_data.arrays import U8
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.card import Card
from kmip_data.format.schema import Schema, View
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.pipelines.base import Prepared, RawFolder, Unit
from kmip_data.pipelines.datasets.superpixels import graph
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.pipelines.shared.fitted import columns_of
from kmip_data.pipelines.shared.own import OwnParams, OwnPipeline, ascii_key, files_below
from kmip_data.pipelines.shared.records import class_column, feature_column, units_of_rows
from kmip_data.shipped import Strict

IMAGES = "images"
MASKS = "masks"
LARGEST_UNIT = 256  #: pictures in a shard
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
        for option, folder in ((IMAGES, self.images), (MASKS, self.masks)):
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
    classes: int = Field(
        default=21,
        ge=2,
        le=graph.MAX_CLASSES,
        description="number of classes, including background",
    )
    void: int = Field(
        default=255,
        ge=0,
        le=65_535,
        description="value of mask pixels without a class",
    )


class OwnSuperpixelPipeline(OwnPipeline[OwnSuperpixelParams]):
    """Pipeline of ``superpixels``, for datasets of any name."""

    version = 3
    extra = "images"
    background = 0
    Params = OwnSuperpixelParams
    Source = SuperpixelSource

    def schema(self, params: OwnSuperpixelParams) -> Schema:
        """Columns of LRGB: 14 features, edge features by the rule, and the class."""
        boundary = ("mean edge strength", "boundary [pixels]")
        fields = ("distance [pixels]",) if params.edges == "knn" else boundary
        columns = (
            *columns_of(self.manifest),
            feature_column("edge/attr", fields, "of the pair of superpixels"),
            class_column(
                "node/y",
                params.classes,
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

    def prepare(self, raw: RawFolder, params: OwnSuperpixelParams, workdir: Path) -> Prepared:
        """Pair images with masks; without ``on_error`` each image must have one."""
        if params.class_name and len(params.class_name) != params.classes:
            names = len(params.class_name)
            raise UsageError(
                f"class_name has {names} names for {params.classes} classes.",
                next=f"--set classes={names}",
            )
        # Images without a mask end the build before any is segmented.
        pairs = pair(raw.members)
        for picture, mask in pairs:
            if mask is None:
                self.stop_or_skip(key_of(picture), _no_mask(picture), params)
        return Prepared(raw.path, {"pairs": pairs})

    def units(self, prepared: Prepared, params: OwnSuperpixelParams) -> list[Unit]:
        """Assign images in the order of their names."""
        chosen = params.choose(len(prepared.plan["pairs"]))
        # Small shards of few pictures, so that every process has work; large ones of many.
        size = min(max(-(-len(chosen) // UNITS), 1), LARGEST_UNIT)
        return units_of_rows(chosen, size, "pictures")

    def records(
        self, prepared: Prepared, unit: Unit, params: OwnSuperpixelParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the pictures of one unit."""
        for row in unit.items["rows"]:
            picture, mask = prepared.plan["pairs"][row]
            try:
                yield self.picture_record(prepared.path, picture, mask, params)
            except DamagedInput as error:
                yield self.stop_or_skip(key_of(picture), error, params)

    def picture_record(
        self,
        folder: Path,
        picture: str,
        mask: str | None,
        params: OwnSuperpixelParams,
    ) -> GraphRecord:
        """Return the graph of one image.

        Raises ``DamagedInput`` if it or its mask is unusable.
        """
        if mask is None:
            raise _no_mask(picture)
        pixels = graph.read_picture(folder / picture, picture)
        size = pixels.shape[:2]
        classes = graph.read_mask(
            folder / mask,
            mask,
            classes=params.classes,
            void=params.void,
        )
        if classes.shape != size:
            sizes = "{1} × {0} pixels, not {3} × {2}".format(*classes.shape, *size)
            raise DamagedInput(f"{mask} differs in size from its picture {picture}: {sizes}.")
        # Segment, connect, describe, label: the steps of LRGB's script.
        segments = graph.superpixels(pixels, params.superpixels)
        edge_index, attr = graph.connect(pixels, segments, params.edges, params.k)
        x = graph.features(pixels, segments)
        y = graph.labels(classes, segments)
        return GraphRecord(
            key=key_of(picture),
            num_nodes=len(x),
            columns={
                "node/x": x.astype(np.float16),
                "edge/attr": attr.astype(np.float32),
                "node/y": y,
            },
            edge_index=edge_index.astype(self.schema(params).index_dtype),
        )

    def pictures(self, card: Card, raw: Path, keys: Sequence[str]) -> Mapping[str, U8 | None]:
        """Return each picture with the borders of its superpixels."""
        pictures: dict[str, U8 | None] = dict.fromkeys(keys)
        # The build's raw copy may be gone; another one would show other images.
        copies = [copy for copy in list_copies(raw) if copy.content_digest == card.content_digest]
        for copy in copies[:1]:
            names = {key_of(picture): picture for picture, _ in pair(copy.members)}
            for key in names.keys() & keys:
                with contextlib.suppress(DamagedInput):
                    picture = graph.read_picture(copy.path / names[key], names[key])
                    segments = graph.superpixels(picture, card.parameters["superpixels"])
                    pictures[key] = graph.with_borders(picture, segments)
        return pictures

    def name_parts(self, params: OwnSuperpixelParams) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        parts = [f"knn{params.k}" if params.edges == "knn" else params.edges]
        if params.superpixels != 500:
            parts.append(f"sp{params.superpixels}")
        return parts + super().name_parts(params)


PIPELINE = OwnSuperpixelPipeline


def pair(members: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return each picture with its mask, by the name without suffix, in the order of the names.

    Raises ``DamagedInput`` where two pictures, or two masks, have one name.
    """
    sides: dict[str, dict[str, str]] = {IMAGES: {}, MASKS: {}}
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
    return [(picture, sides[MASKS].get(stem)) for stem, picture in sorted(sides[IMAGES].items())]


def key_of(picture: str) -> str:
    """Return the key of a picture: its path below the folder, without suffix."""
    path = PurePosixPath(picture.partition("/")[2])
    return ascii_key(str(path.with_suffix("")), 160)


def _no_mask(picture: str) -> DamagedInput:
    stem = picture.partition("/")[2].rpartition(".")[0]
    return DamagedInput(
        f"{picture} has no mask: no {MASKS}/{stem} with one of {', '.join(graph.SUFFIXES)}."
    )
