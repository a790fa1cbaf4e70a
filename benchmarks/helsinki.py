"""Helsinki from extract to finished build, against OSMnx and upstream's code on the same area."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from support.maps.osm_maps import write_areas, write_streets

from benchmarks.eccentricity import upstream_label
from benchmarks.table import Row
from benchmarks.turns import seconds
from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_from_raw
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.raw.find_or_download import obtain_raw

UPSTREAM_NODES = 40  #: nodes labelled by upstream's code; the rest is extrapolated


def rows(*, quick: bool = False) -> list[Row]:
    """Measure one build from the extract, in this process, against OSMnx and upstream's code."""
    from kmip_data.pipelines.datasets.openstreetmap.parameters import OpenStreetMapParams

    pipeline = load_pipeline(load_manifest("helsinki"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        params, quiet = OpenStreetMapParams(), ExecutionOptions(quiet=True)
        raw = obtain_raw(pipeline, params, Home(folder / "home"), quiet, sample=False)
        source = raw.path / pipeline.manifest.content.anchor
        write_streets(source, folder / "streets.osm")
        write_areas(source, folder / "areas.osm")
        nodes = 5 if quick else UPSTREAM_NODES

        def ours() -> None:
            with tempfile.TemporaryDirectory(dir=folder) as work:
                plan = BuildPlan(pipeline, params, raw, Home(Path(work)), quiet)
                build_from_raw(plan, pipeline.SplitParams())

        ours()  # compiles the kernels
        our_seconds = [seconds(ours) for _ in range(1 if quick else 5)]
        features, labels, total = _upstream(folder, nodes)
    note = (
        f"helsinki: upstream is OSMnx on XML, land use, features ({features:.3g} s) and labels "
        f"({labels:.3g} s, EXTRAPOLATED from {nodes} of {total:,} nodes); ours includes writing files"
    )
    theirs = features + labels
    spread = theirs / max(our_seconds), theirs / min(our_seconds)
    what, against = "Helsinki: extract to finished build", "OSMnx + upstream's code"
    return [
        Row.from_figures(
            what,
            against,
            statistics.median(our_seconds),
            theirs,
            "s",
            target=20.0,
            spread=spread,
            note=note,
        )
    ]


def _upstream(folder: Path, sample: int) -> tuple[float, float, int]:
    """Return seconds for graph and features, extrapolated seconds for all labels, and the nodes.

    Runs the steps of City-Networks' generator with OSMnx 2.
    """
    import geopandas
    import osmnx
    import torch
    from torch_geometric.utils import remove_self_loops, scatter, to_undirected

    start = time.perf_counter()
    graph = osmnx.add_edge_speeds(osmnx.graph_from_xml(folder / "streets.osm"))
    counts = osmnx.stats.count_streets_per_node(graph)
    nodes, edges = osmnx.graph_to_gdfs(graph)
    areas = osmnx.features_from_xml(folder / "areas.osm", tags={"landuse": True})[
        ["landuse", "geometry"]
    ]
    joined = geopandas.sjoin_nearest(nodes, areas, how="inner")
    nodes["landuse"] = joined[~joined.index.duplicated(keep="first")]["landuse"]
    nodes["street_count"] = nodes.index.map(counts)
    node_features = [
        nodes[["x", "y", "street_count"]].to_numpy(np.float32),
        _one_hot(nodes["landuse"]),
    ]
    street = [edges[["length", "speed_kph"]].to_numpy(np.float32)]
    street += [_one_hot(edges[name]) for name in ("oneway", "lanes", "reversed", "highway")]
    position = {number: i for i, number in enumerate(nodes.index)}
    index = torch.tensor([[position[u], position[v]] for u, v, _ in edges.index]).T
    attr = torch.from_numpy(np.concatenate(street, axis=1))
    index, attr = remove_self_loops(*to_undirected(index, attr, reduce="mean"))
    mean = scatter(attr, index[1], dim=0, dim_size=len(nodes), reduce="mean")
    np.concatenate([*node_features, mean.numpy()], axis=1)
    feature_seconds = time.perf_counter() - start
    sampled_nodes = np.linspace(0, len(nodes) - 1, sample).astype(int).tolist()
    start = time.perf_counter()
    for node in sampled_nodes:
        upstream_label(node, index, attr[:, 0], len(nodes))
    label_seconds = (time.perf_counter() - start) / sample * len(nodes)
    return feature_seconds, label_seconds, len(nodes)


def _one_hot(values: Any) -> Any:
    strings = values.astype(str)
    category = strings.where(strings.isin(strings.value_counts().index[:8]), "others")
    columns = [(category == name).to_numpy(np.float32) for name in category.value_counts().index]
    return np.stack(columns, axis=1)
