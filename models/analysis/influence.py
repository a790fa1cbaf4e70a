"""From how far away the output of a node is moved, on the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.analysis.recording import check_part
from kmip_data.models.training.data.one_graph import OneGraph
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.runtime.progress import Progress

MOST_HOPS = 16  #: as City-Networks' figure; its labels look as far


def influence(
    run: str | Path,
    *,
    part: str = "test",
    nodes: int = 20,
    hops: int = MOST_HOPS,
    seed: int = 0,
    home: Home | None = None,
    device: str | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Measure a run on one graph, by its best weights in eval mode and float32.

    For ``nodes`` random nodes of ``part`` one vector-Jacobian product per output gives Σ |∂ output / ∂ x_u|,
    over outputs and features, of every node u of the graph. k-MIP attention is differentiated as in
    training, through the chosen pairs.

    ``rows`` have a hop each: ``nodes``, how many are so far away, ``total``, their influence, ``influence``,
    that over the one of the node itself, and ``each``, that over ``nodes``; all are means over the sampled
    nodes. Then ``R``, the mean distance that influence comes from within ``hops`` as City-Networks has it,
    ``R_all`` over all distances, and the shares ``beyond`` and ``unreached`` of all influence.

    One bar shows how far it is unless ``quiet``.
    Raises as :func:`~kmip_data.models.analysis.recording.record_run` does; UsageError on many graphs, too.
    """
    opened = open_run(run, home=home, device=device)
    data = opened.data
    check_part(data, part)
    if not isinstance(data, OneGraph) or not data.graph.x.is_floating_point():
        raise UsageError(
            "Influence by distance is measured on one graph with real features.",
            expected="a run on a city",
            found=f"a run on {data.build.card.dataset}",
            next="kmip-data analyze smoothing RUN measures any run",
        )
    generator, kind = torch.Generator().manual_seed(seed), opened.device.kind
    rows = data.graph[f"{part}_mask"].nonzero().view(-1)
    chosen = rows[torch.randperm(len(rows), generator=generator)[:nodes]].tolist()
    graph = data.graph.clone().to(kind)
    graph.x = graph.x.clone().requires_grad_()
    with opened.working() as module, torch.compiler.set_stance("force_eager"):
        module.doing = "differentiating"
        logits = module.eval().model(graph)
        found = []
        with Progress("influence", len(chosen), unit="nodes", quiet=quiet) as progress:
            for node in chosen:
                found.append(node_influence(logits, graph.x, node))
                progress.update(1)
    distances = hop_distances(data.graph.edge_index, len(data.graph.x), chosen)
    return {"run": str(opened.folder), "sampled": len(chosen)} | by_distance(np.stack(found), distances, hops)


def node_influence(outputs: Tensor, x: Tensor, node: int) -> NDArray[np.float64]:
    """Σ |∂ outputs[node, c] / ∂ x[u, f]| over c and f: (N,), of outputs (N, C) made from x (N, F)."""
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for output in outputs[node]:
        (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
        total += gradient.abs().sum(1)
    return total.cpu().numpy()


def hop_distances(edge_index: Tensor, nodes: int, targets: list[int]) -> NDArray[np.float64]:
    """Edges on the shortest way from each node to each target: (targets, N); inf where there is none."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    source, target = edge_index.cpu().numpy()
    backwards = coo_array((np.ones(len(source)), (target, source)), (nodes, nodes)).tocsr()
    return np.asarray(dijkstra(backwards, indices=targets, unweighted=True))


def by_distance(values: NDArray[np.float64], distances: NDArray[np.float64], hops: int) -> dict[str, Any]:
    """Sums of ``values`` (S, N) by their ``distances`` (S, N), as :func:`influence` returns them."""
    reached = np.isfinite(distances)
    farthest = max(hops, int(distances[reached].max()))
    totals, counts = np.zeros((2, len(values), farthest + 1))
    for row in range(len(values)):
        there = distances[row, reached[row]].astype(np.int64)
        totals[row] = np.bincount(there, values[row, reached[row]], farthest + 1)
        counts[row] = np.bincount(there, minlength=farthest + 1)
    near, whole, mean = totals[:, : hops + 1], values.sum(1), totals.mean(0)
    share, there = mean / mean[0], counts.mean(0)
    columns = {"hop": range(hops + 1), "nodes": there, "total": mean, "influence": share}
    columns["each"] = share / np.maximum(there, 1)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=False)]
    return {
        "R": float((near @ np.arange(hops + 1) / near.sum(1)).mean()),
        "R_all": float((totals @ np.arange(farthest + 1) / totals.sum(1)).mean()),
        "beyond": float((totals[:, hops + 1 :].sum(1) / whole).mean()),
        "unreached": float((1 - totals.sum(1) / whole).mean()),
        "rows": rows,
    }
