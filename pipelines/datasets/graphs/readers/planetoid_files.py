"""The eight files ``ind.NAME.…`` of Planetoid, as published for Cora, CiteSeer and PubMed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.split_files import PARTS
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.datasets.graphs.findings import Findings, register_part_masks
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.planetoid import PlanetoidPipeline
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges
from kmip_data.pipelines.graph_arrays.layout_reader import RawReader

_EXPECTED = "ind.NAME.x, .tx, .allx, .y, .ty, .ally, .graph and .test.index of Planetoid"
_FILE_SUFFIXES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file has one of the eight names."""
    return any(map(_dataset_name, heads))


def _dataset_name(file: str) -> str:
    """Return NAME of ``ind.NAME.…``; empty for other files."""
    prefix, _, rest = Path(file).name.partition(".")
    name, _, end = rest.partition(".")
    return name if prefix == "ind" and end in _FILE_SUFFIXES else ""


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graph, with the public split as masks, like PyTorch Geometric's ``Planetoid``."""
    names = sorted({name for name in map(_dataset_name, files) if name})
    if len(names) > 1:
        raise DamagedInput(
            f"The files are of {len(names)} graphs: {', '.join(names)}.",
            steps="copy the files of one of them to a folder, and use it as archive",
        )
    name = names[0]
    dataset_files = {file for file in files if _dataset_name(file)}
    findings.notices.ignored |= dict.fromkeys(
        (file for file in files if file not in dataset_files), "no file of this format"
    )
    ends = {Path(file).name.removeprefix(f"ind.{name}.") for file in dataset_files}
    missing = [f"ind.{name}.{end}" for end in _FILE_SUFFIXES if end not in ends]
    if missing:
        raise DamagedInput(
            f"Of the eight files ind.{name}.…, {', '.join(missing)} are missing.",
            steps="use a folder with all eight files",
        )

    raw = RawReader((folder / min(dataset_files)).parent, name)
    planetoid = PlanetoidPipeline(load_manifest("cora"))
    with raw.convert_item_errors():
        arrays = planetoid.read(raw)
        masks = planetoid.masks(raw, 0)
    named_masks = dict(zip((f"{part}_mask" for part in PARTS), masks, strict=True))
    targets = findings.attributes.add_targets("y", arrays["y"], "node", options.params.task)
    columns = {"node/x": arrays["x"], **targets}
    nodes = len(arrays["x"])
    check_raw_edges(arrays["edge_index"], nodes, name)
    columns |= register_part_masks(
        named_masks, nodes, name, options, findings, masks_are_flags=False
    )
    yield GraphRecord(
        key=name, num_nodes=nodes, columns=columns, edge_index=np.asarray(arrays["edge_index"])
    )


FORMAT = GraphFormat(
    name="Planetoid files",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=frozenset({"class_name", "task", "undirected"}),
)
