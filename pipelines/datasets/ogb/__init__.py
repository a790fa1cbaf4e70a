"""Open Graph Benchmark: molecules, node classification graphs and PCQM4Mv2 from published tables.

Raw layout: ``raw`` has gzipped tables of numbers without a header, in which all graphs are
concatenated; ``split/RULE/{train,valid,test}.csv.gz`` list rows of graphs or nodes. Facts and
deviations: ``docs/datasets/ogb.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import AnyPipeline
from kmip_data.pipelines.datasets.ogb.csv_pipelines import OGBGraphsPipeline, OGBNodesPipeline
from kmip_data.pipelines.datasets.ogb.pcqm4m import PCQM4MPipeline

#: Pipelines of datasets other than tables of molecules.
_PIPELINES: dict[str, type[AnyPipeline]] = {
    "ogbn-arxiv": OGBNodesPipeline,
    "ogbn-products": OGBNodesPipeline,
    "pcqm4mv2": PCQM4MPipeline,
    "pcqm4mv2-subset": PCQM4MPipeline,
}


def make_pipeline(manifest: Manifest) -> AnyPipeline:
    """Return the pipeline of the manifest's dataset."""
    pipeline = _PIPELINES.get(manifest.registered_name, OGBGraphsPipeline)
    return pipeline(manifest)


PIPELINE = make_pipeline
