"""Time of each stage of attention: search, gather, softmax, multiply, backward."""

from __future__ import annotations

import math
import statistics

import torch

from kmip_data.models.profiling.measuring import Measurer
from kmip_data.models.profiling.methods import Method, gathered, weighted, weights_of
from kmip_data.models.profiling.workload import Workload

#: in the order in which they run; "attend" is gather, softmax and multiply in one piece
STAGES = ("search", "scores", "gather", "softmax", "multiply", "attend", "backward")


def stages(measurer: Measurer, method: Method, n: int) -> dict[str, float]:
    """Median seconds of each stage of one training step, the first run left out.

    Methods whose forward pass is one piece have ``attend`` instead of the stages that it holds: all
    of the forward pass but the search, which is timed by itself. The stages of ``full`` are those of
    unchunked attention.
    """
    runs = [
        _stages_of(measurer, method, measurer.inputs(method, n, number, training=True))
        for number in range(measurer.protocol.repeats + 1)
    ][1:]
    return {name: statistics.median(run[name] for run in runs) for name in STAGES if name in runs[0]}


def _stages_of(measurer: Measurer, method: Method, work: Workload) -> dict[str, float]:
    timed, chunk, search = measurer.timed, measurer.chunk(), method.search
    queries, keys, values = work.tensors
    found: dict[str, float] = {}
    if search is not None and method.fused is None:
        found["search"], indices = timed(lambda: search(work, chunk))
        found["gather"], chosen = timed(lambda: gathered(keys, values, indices))
        found["softmax"], weights = timed(lambda: weights_of(queries, chosen[0]))
        found["multiply"], out = timed(lambda: weighted(weights, chosen[1]))
    elif method.name == "full" and work.real is None:
        found["scores"], scores = timed(lambda: queries @ keys.mT / math.sqrt(queries.shape[-1]))
        found["softmax"], weights = timed(lambda: scores.softmax(-1))
        found["multiply"], out = timed(lambda: weights @ values)
    else:
        whole, out = timed(lambda: method.attend(work, chunk))
        if search is not None:
            with torch.no_grad():
                found["search"], _ = timed(lambda: search(work, chunk))
        found["attend"] = max(0.0, whole - found.get("search", 0.0))
    ones = torch.ones_like(out)
    found["backward"], _ = timed(lambda: torch.autograd.backward(out, ones))
    return found
