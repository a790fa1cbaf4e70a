"""Six graphs of Geom-GCN: pages and actors that link to each other, a class for each node.

Raw layout: ``out1_node_feature_label.txt``, a header and then lines of number, features and label
with tabs between; the features are 0 and 1 separated by commas, in ``actor`` the numbers of the
columns that are 1. ``out1_graph_edges.txt``, a header and then two numbers a line. Ten published
splits, ``NAME_split_0.6_0.2_{0…9}.npz``, with the arrays ``train_mask``, ``val_mask`` and
``test_mask`` [N]. Facts and deviations: ``docs/datasets/geom-gcn.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.arrays import I64, U8
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Prepared,
    RawFolder,
    Records,
    Split,
    SplitParams,
    Unit,
)
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.shared.checks import in_range
from kmip_data.pipelines.shared.records import (
    OneGraphParams,
    OneGraphPipeline,
    class_column,
    codes_of_masks,
)

NODES = "out1_node_feature_label.txt"
EDGES = "out1_graph_edges.txt"
CLASSES = 5
FOLDS = 10
_FILE = "graph.npz"
_NUMBERS = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")


class Graph(NamedTuple):
    """Names and sizes of a graph."""

    stem: str  #: of its published splits
    columns: int  #: of x
    listed: bool = False  #: features are numbers of columns
    features: str = "1: the word is on the page"


GRAPHS = {
    "actor": Graph("film", 932, True, "1: the word is on the actor's page"),
    "cornell": Graph("cornell", 1_703),
    "texas": Graph("texas", 1_703),
    "wisconsin": Graph("wisconsin", 1_703),
    "chameleon": Graph("chameleon", 2_325),
    "squirrel": Graph("squirrel", 2_089),
}


class GeomGCNSplitParams(SplitParams):
    """Parameters of the split."""

    split: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published masks; stratified: drawn anew in parts of the same "
        "sizes, with equal shares of the classes",
    )
    fold: int = Field(
        default=0, ge=0, lt=FOLDS, description="which of the ten published splits, from 0"
    )


class GeomGCNPipeline(OneGraphPipeline[OneGraphParams, GeomGCNSplitParams]):
    """Pipeline of ``actor``, ``cornell``, ``texas``, ``wisconsin``, ``chameleon``, ``squirrel``."""

    version = 1
    Params = OneGraphParams
    SplitParams = GeomGCNSplitParams

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.graph = GRAPHS[manifest.file]
        self.sample_arguments = {"name": manifest.file}

    def schema(self, params: OneGraphParams) -> Schema:
        """Words and class of each node."""
        words = Column(
            key="node/x",
            attribute="x",
            stored="uint8",
            presented="float32",
            shape=(self.graph.columns,),
            doc=self.graph.features,
        )
        return Schema(
            columns=(words, class_column("node/y", CLASSES, "class of the node")),
            edges="index",
            max_nodes=self.manifest.max_nodes,
        )

    def prepare(self, raw: RawFolder, params: OneGraphParams, workdir: Path) -> Prepared:
        """Read and check the text files, and the masks of all splits."""
        x, y = read_nodes(raw.path / NODES, self.graph)
        edges = read_edges(raw.path / EDGES, len(y))
        for fold in range(FOLDS):
            read_masks(self._split_file(raw.path, fold), len(y))
        np.savez(workdir / _FILE, x=x, y=y, edges=edges)
        return Prepared(workdir)

    def records(
        self, prepared: Prepared, unit: Unit, params: OneGraphParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph."""
        with np.load(prepared.path / _FILE, allow_pickle=False) as stored:
            yield GraphRecord(
                key=unit.name,
                num_nodes=len(stored["y"]),
                columns={"node/x": stored["x"], "node/y": stored["y"]},
                edge_index=stored["edges"].astype(self.schema(params).index_dtype),
            )

    def split(self, records: Records, params: GeomGCNSplitParams, raw: Path | None) -> Split:
        """Read the published masks of a fold."""
        path = self._split_file(self.raw_lists(raw), params.fold)
        codes = read_masks(path, int(records.nodes[0]))
        name = f"upstream-fold{params.fold}"
        note = "the published masks"
        return Split(name, "upstream", {"fold": params.fold}, note=note, node_code=codes)

    def default_splits(self) -> list[GeomGCNSplitParams]:
        """All ten published splits."""
        return [GeomGCNSplitParams(fold=fold) for fold in range(FOLDS)]

    def _split_file(self, folder: Path, fold: int) -> Path:
        return folder / f"{self.graph.stem}_split_0.6_0.2_{fold}.npz"


PIPELINE = GeomGCNPipeline


def read_nodes(path: Path, graph: Graph) -> tuple[U8, U8]:
    """Read the features (N, columns) and classes (N,) of the nodes, in the order of their numbers."""
    lines = read_lines(path)[1:]
    count = len(lines)
    x = np.zeros((count, graph.columns), np.uint8)
    y = np.zeros(count, np.uint8)
    seen = np.zeros(count, np.bool_)
    for line, text in enumerate(lines, start=2):
        where = f"{path.name}, line {line}"
        fields = text.split("\t")
        if len(fields) != 3:
            raise DamagedInput(
                f"{where}: {len(fields)} fields, not a number, features and a label."
            )
        number, features, label = (_whole_numbers(field, where) for field in fields)
        if not in_range(number, count) or len(number) != 1 or seen[number].any():
            raise DamagedInput(
                f"{where}: node {fields[0]} is not below {count}, or has a line before."
            )
        if not in_range(label, CLASSES) or len(label) != 1:
            raise DamagedInput(f"{where}: the class {fields[2][:40]}, not one of {CLASSES}.")

        # Features are columns that hold 1, or one value for each column.
        if graph.listed:
            fits = in_range(features, graph.columns)
        else:
            fits = len(features) == graph.columns and in_range(features, 256)
        if not fits:
            raise DamagedInput(
                f"{where}: {len(features)} features up to {features.max()}, of {graph.columns} columns."
            )
        if graph.listed:
            x[number, features] = 1
        else:
            x[number] = features
        y[number] = label
        seen[number] = True
    return x, y


def read_edges(path: Path, nodes: int) -> I64:
    """Read the edges, (2, E), each once, by first, then second node."""
    pairs = np.zeros((0, 2), np.int64)
    rows = []
    for line, text in enumerate(read_lines(path)[1:], start=2):
        ends = _whole_numbers(text.replace("\t", ","), f"{path.name}, line {line}")
        if len(ends) != 2 or not in_range(ends, nodes):
            raise DamagedInput(
                f"{path.name}, line {line}: {text[:40]!r}, not two of {nodes} nodes."
            )
        rows.append(ends)
    if rows:
        pairs = np.stack(rows)
    # A pair as one number: sorted and each once in one pass.
    codes = np.unique(pairs[:, 0] * nodes + pairs[:, 1])
    return np.stack(np.divmod(codes, nodes))


def _whole_numbers(text: str, where: str) -> I64:
    """Return numbers that are separated by commas."""
    if not _NUMBERS.fullmatch(text):
        raise DamagedInput(f"{where}: {text[:40]!r} is not of whole numbers.")
    return np.fromstring(text, np.int64, sep=",")


def read_masks(path: Path, nodes: int) -> NDArray[np.uint8]:
    """Read a published split: the part of each node, (N,), 255 for none."""
    masks = []
    try:
        with zipfile.ZipFile(path) as archive:
            for part in PARTS:
                name = f"{part}_mask.npy"
                # A small zip may unpack to any size: the declared one is checked first.
                if archive.getinfo(name).file_size > 8 * nodes + 1_000:
                    raise DamagedInput(f"{path.name}: {name} is of more than {nodes} nodes.")
                with archive.open(name) as member:
                    masks.append(np.lib.format.read_array(member, allow_pickle=False))
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        MemoryError,  # a header that declares more than there can be
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DamagedInput(
            f"{path.name} is not a split of masks.", found=f"{type(error).__name__}: {error}"
        ) from error

    return codes_of_masks(masks, nodes, path.name)
