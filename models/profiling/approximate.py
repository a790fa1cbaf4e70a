"""FAISS indexes as the search of k-MIP attention: exact (flat) and approximate (IVF, PQ, LSH)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.profiling.workload import Padded
from kmip_data.models.search.topk import topk_inner_product

Rows = NDArray[np.float32]
LSH_BITS = 256  #: of a row's code
PROBES = 30  #: lists that IVF visits for a query, as in the paper's code


@dataclass(frozen=True)
class FaissIndex:
    """How an index is made of keys (n, d), and what it is."""

    make: Callable[[Rows], Any]
    summary: str
    lift: bool = False  #: rows get one more number that gives all keys the same norm


def _flat(keys: Rows) -> Any:
    import faiss

    index = faiss.IndexFlatIP(keys.shape[1])
    index.add(keys)
    return index


def _ivf(keys: Rows) -> Any:
    import faiss

    lists = 4 * math.isqrt(len(keys))
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(keys.shape[1]), keys.shape[1], lists, faiss.METRIC_INNER_PRODUCT
    )
    index.train(keys)
    index.add(keys)
    index.nprobe = min(PROBES, lists)
    return index


def _pq(keys: Rows) -> Any:
    import faiss

    d = keys.shape[1]
    parts = d // 2 if d % 2 == 0 else d
    bits = min(8, int(math.log2(len(keys))))  # as many centres as rows at most
    index = faiss.IndexPQ(d, parts, bits, faiss.METRIC_INNER_PRODUCT)
    index.train(keys)
    index.add(keys)
    return index


def _lsh(keys: Rows) -> Any:
    import faiss

    index = faiss.IndexLSH(keys.shape[1], LSH_BITS)
    index.add(keys)
    return index


FAISS_INDEXES = {
    "faiss-flat": FaissIndex(_flat, "FAISS IndexFlatIP, exact"),
    "faiss-ivf": FaissIndex(_ivf, f"FAISS IndexIVFFlat, 4√n lists, {PROBES} visited, as in the paper's code"),
    "faiss-pq": FaissIndex(_pq, "FAISS IndexPQ, a byte for each two numbers"),
    "faiss-lsh": FaissIndex(_lsh, f"FAISS IndexLSH, {LSH_BITS} bits of rows lifted to one norm", lift=True),
}


def faiss_search(name: str, inputs: Padded) -> Tensor:
    """Indices (1, H, n, k) that an index built of the keys finds for the queries; one graph.

    Building the index counts as search: keys change at every layer and step. Slots that the index
    left empty hold key 0, as a gather needs one.
    """
    if inputs.queries.shape[0] != 1:
        msg = "FAISS indexes take one graph here"
        raise NotImplementedError(msg)
    kind = FAISS_INDEXES[name]
    found = []
    for queries, keys in zip(inputs.queries[0], inputs.keys[0], strict=True):
        rows, base = (np.ascontiguousarray(tensor.detach().numpy()) for tensor in (queries, keys))
        if kind.lift:
            rows, base = _lifted(rows, base)
        _, indices = kind.make(base).search(rows, inputs.k)
        found.append(torch.from_numpy(indices).clamp_min_(0))
    return torch.stack(found)[None]


def _lifted(queries: Rows, keys: Rows) -> tuple[Rows, Rows]:
    """Add a coordinate so that all keys have the largest norm and inner products stay.

    Neyshabur and Srebro (2015): the nearest by angle is then the largest inner product.
    """
    squares = (keys * keys).sum(1)
    extra = np.sqrt(np.maximum(squares.max() - squares, 0))
    none = np.zeros(len(queries), np.float32)
    return np.column_stack([queries, none]), np.column_stack([keys, extra])


def recall(queries: Tensor, keys: Tensor, indices: Tensor, *, rows: int = 1000, seed: int = 0) -> float:
    """Share of the exact k best keys that ``indices`` (H, n, k) hold, over some random queries.

    Parameters
    ----------
    queries, keys
        (H, n, d).
    rows
        Queries looked at, each against all keys.
    """
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(queries.shape[1], generator=generator)[:rows]
    exact = topk_inner_product(queries[:, some], keys, indices.shape[2])[1]
    hits = (exact[..., None] == indices[:, some, None]).any(-1)
    return float(hits.float().mean())
