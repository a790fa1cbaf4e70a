"""How alike neighbours become from layer to layer: Dirichlet energy, cosine distance, norms."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import degree, scatter

from kmip_data.builds.home import Home
from kmip_data.models.analysis.recording import first_batches
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.gps import GPSLayer
from kmip_data.models.training.machine import autocast
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.runtime.progress import Progress

FIGURES = {
    "dirichlet": "Dirichlet energy",
    "mad": "cosine distance (MAD)",
    "norm": "norm of a node's state",
}


def smoothing(
    run: str | Path,
    *,
    part: str = "test",
    graphs: int = 50,
    home: Home | None = None,
    device: str | None = None,
    quiet: bool = True,
) -> list[dict[str, Any]]:
    """Measure what goes into the first layer of ``run`` (layer 0), and what comes out of each: a row each.

    Means and deviations (ddof 0) over the first ``graphs`` graphs of ``part``, by the best weights, of what
    :func:`smoothness` measures. Raises as :func:`~kmip_data.models.analysis.recording.record_run` does.
    """
    opened = open_run(run, home=home, device=device)
    found: dict[int, list[Tensor]] = {}

    def see(number: int, _: nn.Module, args: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        x, _, batch = args[:3]
        for layer, rows in [(number + 1, out[0])] if number else [(0, x), (1, out[0])]:
            found.setdefault(layer, []).append(smoothness(rows, batch))

    taken = []
    with opened.working() as module, torch.compiler.set_stance("force_eager"), torch.inference_mode():
        layers = [each for each in module.eval().model.modules() if isinstance(each, GPSLayer)]
        for number, layer in enumerate(layers):
            layer.register_forward_hook(partial(see, number))
        with Progress("smoothing", None, unit="graphs", quiet=quiet) as progress:
            for batch, count in first_batches(opened, part, graphs):
                with autocast(opened.config.training.precision, opened.device.kind):
                    module(batch)
                taken.append(count)
                progress.update(count)
    rows = []
    for number, each in sorted(found.items()):
        values = torch.cat([rows[:count] for rows, count in zip(each, taken, strict=True)])
        row: dict[str, Any] = {"run": str(opened.folder), "layer": number, "graphs": len(values)}
        for name, column in zip(FIGURES, values.T, strict=True):
            row |= {name: float(column.mean()), f"{name}_std": float(column.std(correction=0))}
        rows.append(row)
    return rows


def smoothness(x: Tensor, batch: GraphBatch) -> Tensor:
    """Return (G, 3) :data:`FIGURES` of node states (N, d), in float64.

    As the published code's, an edge from i to j, dᵢ the number of edges that leave i:

    - Dirichlet energy: mean over edges of ½ ‖xᵢ / √(dᵢ + 1) − xⱼ / √(dⱼ + 1)‖²;
    - MAD: mean over nodes of the sum over edges that arrive of 1 − cos(xᵢ, xⱼ);
    - norm: mean over nodes of ‖xᵢ‖.
    """
    x, (source, target), graph = x.double(), batch.edges.index, batch.graph
    scaled = x / (degree(source, len(x), dtype=x.dtype) + 1).sqrt()[:, None]
    energy = (scaled[source] - scaled[target]).square().sum(1) / 2
    distance = scatter(1 - torch.cosine_similarity(x[source], x[target]), target, dim_size=len(x))
    each = ((energy, graph[target]), (distance, graph), (x.norm(dim=1), graph))
    means = [scatter(values, of, dim_size=batch.num_graphs, reduce="mean") for values, of in each]
    return torch.stack(means, 1).cpu()
