"""FAISS indexes as the search of k-MIP attention: exact (flat) and approximate (IVF, PQ, LSH)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.profiling.workload import Workload
from kmip_data.models.search.topk import topk_inner_product

Rows = NDArray[np.float32]
LSH_BITS = 256  #: of a row's code
PROBES = 30  #: lists that IVF visits for a query, as in the paper's code


def _product_quantiser(n: int, d: int) -> str:
    bits = min(8, int(math.log2(n)))  # at most as many centres as rows
    return f"PQ{d if d % 2 else d // 2}x{bits}np"


#: name -> what FAISS' index_factory takes for n keys of length d
FAISS_INDEXES: dict[str, Callable[[int, int], str]] = {
    "faiss-flat": lambda _n, _d: "Flat",  # exact
    "faiss-ivf": lambda n, _d: f"IVF{4 * math.isqrt(n)},Flat",  # 4√n lists, as in the paper's code
    "faiss-pq": _product_quantiser,  # a byte for each two numbers
    "faiss-lsh": lambda _n, _d: f"LSH{LSH_BITS}r",  # of rows lifted to one norm
}


def faiss_search(name: str, work: Workload) -> Tensor:
    """Indices (1, H, n, k) that an index built of the keys finds for the queries of one padded graph.

    Building the index counts as search: keys change at every layer and step. Slots that the index
    left empty hold key 0, as a gather needs one.
    """
    if work.queries.shape[0] != 1:
        msg = "FAISS indexes take one graph here"
        raise NotImplementedError(msg)
    found = []
    for queries, keys in zip(work.queries[0], work.keys[0], strict=True):
        rows, base = (np.ascontiguousarray(tensor.detach().numpy()) for tensor in (queries, keys))
        if name == "faiss-lsh":
            rows, base = _lifted(rows, base)
        _, indices = _index(name, base).search(rows, work.k)
        found.append(torch.from_numpy(indices).clamp_min_(0))
    return torch.stack(found)[None]


def _index(name: str, keys: Rows) -> Any:
    import faiss

    metric = faiss.METRIC_L2 if name == "faiss-lsh" else faiss.METRIC_INNER_PRODUCT  # LSH looks at angles
    index = faiss.index_factory(keys.shape[1], FAISS_INDEXES[name](*keys.shape), metric)
    index.train(keys)
    index.add(keys)
    if isinstance(index, faiss.IndexIVF):
        index.nprobe = min(PROBES, index.nlist)
    return index


def _lifted(queries: Rows, keys: Rows) -> tuple[Rows, Rows]:
    """Add a coordinate so that all keys have the largest norm and inner products stay.

    Neyshabur and Srebro (2015): the nearest by angle is then the largest inner product.
    """
    squares = (keys * keys).sum(1)
    extra = np.sqrt(np.maximum(squares.max() - squares, 0))
    return np.column_stack([queries, np.zeros(len(queries), np.float32)]), np.column_stack([keys, extra])


def recall(queries: Tensor, keys: Tensor, indices: Tensor) -> float:
    """Share of the exact k best keys that ``indices`` (H, N, k) hold, over up to 1,000 random queries.

    Each of these is compared with all keys, (H, N, d).
    """
    some = torch.randperm(queries.shape[1], generator=torch.Generator().manual_seed(0))[:1000]
    exact = topk_inner_product(queries[:, some], keys, indices.shape[2])[1]
    return float((exact[..., None] == indices[:, some, None]).any(-1).float().mean())
