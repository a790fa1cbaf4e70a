"""Time of each stage of attention: search, gather, softmax, multiply, backward."""

from __future__ import annotations

import math
import statistics

import torch

from kmip_data.models.profiling.measuring import Measurer
from kmip_data.models.profiling.methods import Inputs, Method, gathered, weighted, weights_of
from kmip_data.models.profiling.workload import Padded

#: in the order in which they run; "attend" is gather, softmax and multiply in one piece
STAGES = ("search", "scores", "gather", "softmax", "multiply", "attend", "backward")


def stages(measurer: Measurer, method: Method, n: int) -> dict[str, float]:
    """Median seconds of each stage of one training step, the first run left out.

    Methods whose forward pass is one piece have ``attend`` in place of the stages that it holds: all
    of the forward pass but the search, which is timed by itself. The stages of ``full`` are those of
    unchunked attention.
    """
    runs = []
    for number in range(measurer.protocol.repeats + 1):
        inputs = measurer.inputs(method, n, number, training=True)
        runs.append(_stages_of(measurer, method, inputs))
    counted = runs[1:]
    return {name: statistics.median(run[name] for run in counted) for name in STAGES if name in counted[0]}


def _stages_of(measurer: Measurer, method: Method, inputs: Inputs) -> dict[str, float]:
    timed, chunk = measurer.timed, measurer.chunk()
    found: dict[str, float] = {}
    if method.search is not None and not method.fused:
        search = method.search
        found["search"], indices = timed(lambda: search(inputs, chunk))
        queries, keys, values = inputs.tensors
        found["gather"], chosen = timed(lambda: gathered(keys, values, indices))
        found["softmax"], weights = timed(lambda: weights_of(queries, chosen[0]))
        found["multiply"], out = timed(lambda: weighted(weights, chosen[1]))
    elif method.name == "full" and isinstance(inputs, Padded) and inputs.real is None:
        queries, keys, values = inputs.tensors
        found["scores"], scores = timed(lambda: queries @ keys.mT / math.sqrt(queries.shape[-1]))
        found["softmax"], weights = timed(lambda: scores.softmax(-1))
        found["multiply"], out = timed(lambda: weights @ values)
    else:
        whole, out = timed(lambda: method.attend(inputs, chunk))
        if method.search is not None:
            search = method.search
            with torch.no_grad():
                found["search"], _ = timed(lambda: search(inputs, chunk))
        found["attend"] = max(0.0, whole - found.get("search", 0.0))
    ones = torch.ones_like(out)
    found["backward"], _ = timed(lambda: torch.autograd.backward(out, ones))
    return found
