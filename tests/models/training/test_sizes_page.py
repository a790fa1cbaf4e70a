"""Disk and memory of each dataset in docs/sizes.md: computed from manifests, schemas and the memory formula.

``make docs-tables`` writes the table; that builds the sample of every dataset in it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.shared import ROOT

from kmip_data.builds.home import Home
from kmip_data.format.schema import bytes_per_graph_node_edge
from kmip_data.manifest import Manifest, dataset_names, load_manifest
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.memory_estimate import step_bytes
from kmip_data.pipelines.base import load_pipeline

PAGE = ROOT / "docs" / "sizes.md"
TABLE = re.compile(r"(?s)(<!-- sizes: .*? -->\n\n\| dataset .*?\n\|[-|]+\n)(.*?)(?=\n\n|\Z)")
GIB = 2**30
GRAPHS, INTERSECTIONS = 60, 600  #: size of a sample; only its columns matter here


def sized() -> list[Manifest]:
    """Manifests with published numbers of graphs, nodes and edges."""
    manifests = [load_manifest(name) for name in dataset_names()]
    return [m for m in manifests if m.expected.graphs and m.expected.avg_edges]


def disk_bytes(manifest: Manifest) -> float:
    """Bytes of the shards of the complete build with default parameters, without padding."""
    expected = manifest.expected
    assert expected.graphs is not None
    assert expected.avg_nodes is not None
    assert expected.avg_edges is not None
    pipeline = load_pipeline(manifest)
    per_graph, per_node, per_edge = bytes_per_graph_node_edge(pipeline.schema(pipeline.Params()))
    return expected.graphs * (
        per_graph + expected.avg_nodes * per_node + expected.avg_edges * per_edge
    )


def batch_of(manifest: Manifest, graphs: int) -> BatchSize:
    """A batch of graphs of the published average size."""
    expected = manifest.expected
    assert expected.avg_nodes is not None
    assert expected.avg_edges is not None
    nodes = round(graphs * expected.avg_nodes)
    return BatchSize(
        graphs, nodes, round(graphs * expected.avg_edges), round(nodes * expected.avg_nodes)
    )


def memory_cells(manifest: Manifest, home: Home) -> list[str]:
    """Batch of the default preset, and the memory of its step with layers kept and recomputed."""
    limit = INTERSECTIONS if manifest.expected.graphs == 1 else GRAPHS
    config = apply_overrides(
        config_for_data(manifest.name),
        ["data.sample=true", f"data.parameters.limit={limit}", "system.device=cpu"],
    )
    data = open_data(config, home=home)
    config = data.pin_settings(config)
    graphs = 1 if data.part_members == "nodes" else config.training.batch_size
    size = replace(batch_of(manifest, graphs), is_table=data.largest_batch.is_table)
    needs = [
        step_bytes(config, data.network_sizes, size, recompute=recompute)
        for recompute in (False, True)
    ]
    batch = f"{graphs} × {manifest.expected.avg_nodes:,.0f}"
    return [batch, *(f"{need / GIB:.2f}" for need in needs)]


def written_rows() -> dict[str, list[str]]:
    """Cells of each row on the page, by dataset; datasets of equal cells share a row."""
    match = TABLE.search(PAGE.read_text("utf-8"))
    assert match is not None, f"{PAGE} has no table of sizes"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in match[2].splitlines()]
    return {name: row[1:] for row in rows for name in re.findall("`(.+?)`", row[0])}


def disk_cell(manifest: Manifest) -> str:
    megabytes = disk_bytes(manifest) / 1e6
    return f"{megabytes:.1f}" if megabytes < 10 else f"{megabytes:,.0f}"


@pytest.mark.skipif(not os.environ.get("KMIP_DATA_WRITE_DOCS"), reason="KMIP_DATA_WRITE_DOCS=1")
@pytest.mark.slow
def test_the_table_of_sizes_is_written(tmp_path: Path) -> None:
    names: dict[str, list[str]] = {}
    for manifest in sized():
        cells = [disk_cell(manifest), *memory_cells(manifest, Home(tmp_path))]
        names.setdefault(" | ".join(cells), []).append(f"`{manifest.name}`")
    lines = [f"| {', '.join(equal)} | {cells} |" for cells, equal in names.items()]
    text = PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda match: match[1] + "\n".join(lines), text), "utf-8")


def test_every_dataset_with_published_counts_has_its_disk_size() -> None:
    disk = {name: cells[0] for name, cells in written_rows().items()}
    assert disk == {manifest.name: disk_cell(manifest) for manifest in sized()}


@pytest.mark.slow
def test_memory_in_each_row_equals_the_formula(tmp_path: Path) -> None:
    several = [manifest for manifest in sized() if manifest.expected.graphs > 1]
    small = min(several, key=lambda manifest: manifest.expected.avg_nodes)
    assert written_rows()[small.name][1:] == memory_cells(small, Home(tmp_path))
