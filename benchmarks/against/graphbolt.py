"""GraphBolt's side of ``sampling``, run in an environment with its version of torch.

``python graphbolt.py CONFIG.json`` maps the shard of a build and prints the versions. For each line
on stdin, the path of int64 seeds, it samples their batches and prints seconds, nodes and edges.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dgl
import dgl.graphbolt as gb
import numpy as np
import torch

from kmip_data.format.reader import map_files


def main(config: dict[str, Any]) -> None:
    """Map the graph, then answer each line of stdin with a line."""
    torch.set_num_threads(config["threads"])
    with ExitStack() as stack:
        opened = [stack.enter_context(Path(name).open("rb")) for name in config["files"]]
        sizes = [os.fstat(file.fileno()).st_size for file in opened]
        shard = map_files([file.fileno() for file in opened], sizes, private=True)

    def mapped(offset: int, count: int, dtype: str) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(shard, dtype, count, offset))

    nodes, width = config["shape"]
    x = mapped(config["x"], nodes * width, "float32").view(nodes, width)
    y = mapped(config["y"], nodes, config["labels"]).view(nodes, 1)
    # Use the mapped sources, which are below 2³¹, without conversion.
    source = mapped(config["edges"], config["count"], "int32")
    target = np.frombuffer(shard, "uint32", config["count"], config["edges"] + 4 * config["count"])
    indptr = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=nodes), out=indptr[1:])
    graph = gb.fused_csc_sampling_graph(torch.from_numpy(indptr), source)
    features = gb.BasicFeatureStore(
        {("node", None, name): gb.TorchBasedFeature(v) for name, v in (("x", x), ("y", y))}
    )
    answer({"versions": f"dgl {dgl.__version__}, torch {torch.__version__}"})

    for line in sys.stdin:
        seeds = torch.from_numpy(np.load(line.strip())).int()
        began = time.perf_counter()
        num_nodes = 0
        num_edges = 0
        for batch in batches(graph, features, seeds, config):
            num_nodes += len(batch.node_features["x"])
            num_edges += sum(len(sub.sampled_csc.indices) for sub in batch.sampled_subgraphs)
        answer({"seconds": time.perf_counter() - began, "nodes": num_nodes, "edges": num_edges})
        last = batch.input_nodes.long()
        assert torch.equal(batch.node_features["x"], x[last])


def batches(
    graph: Any, features: Any, seeds: torch.Tensor, config: dict[str, Any]
) -> Iterator[Any]:
    """Iterate over GraphBolt's pipeline."""
    pipe = gb.ItemSampler(gb.ItemSet(seeds, names="seed_nodes"), batch_size=config["batch_size"])
    # GraphBolt lists the last hop first.
    pipe = pipe.sample_neighbor(graph, config["fanouts"][::-1])
    pipe = pipe.fetch_feature(features, node_feature_keys=["x", "y"])
    yield from gb.DataLoader(pipe, num_workers=0)


def answer(values: dict[str, Any]) -> None:
    """Print one line."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
