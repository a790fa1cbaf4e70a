"""Citation graphs of Planetoid (Yang et al. 2016): Cora, CiteSeer and PubMed.

Raw layout: eight files ``ind.NAME.…``. Pickles of Python 2: sparse features of train nodes (``x``),
of all nodes except test (``allx``) and of test nodes (``tx``), their one-hot labels (``y``,
``ally``, ``ty``), and the neighbours of each node (``graph``). Text: the numbers of test nodes
(``test.index``), in the order of ``tx``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, Array, Bools
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.base import Records, Split, check_fold
from kmip_data.pipelines.formats.pickles import Pending, RefusedError, read_pickle, refuse_calls
from kmip_data.pipelines.formats.tensors import NUMPY
from kmip_data.pipelines.graph_arrays.layout_reader import Raw
from kmip_data.pipelines.manifest_pipelines import FoldParams, GraphWithMasksPipeline

VAL, TEST = 500, 1_000  #: nodes
A_CLASS = 20  #: train nodes per class of a drawn split
_MAX_VALUES = 2**27  #: most values of a matrix that is made dense: 512 MiB


class PlanetoidSplitParams(FoldParams):
    """Parameters of the split."""

    random_rules = ("stratified", "per-class")

    split_rule: Literal["upstream", "per-class", "stratified"] = Field(  # type: ignore[assignment]
        default="upstream",
        description="upstream: the public split; per-class: 20 nodes of each class drawn to train, "
        "500 of the others to val, 1,000 to test, as tunedGNN draws them; stratified: the public "
        "split's sizes with equal shares of the classes",
    )


class PlanetoidPipeline(GraphWithMasksPipeline[PlanetoidSplitParams]):
    """Pipeline of ``cora``, ``citeseer`` and ``pubmed``."""

    SplitParams = PlanetoidSplitParams

    def split(self, records: Records, params: PlanetoidSplitParams, raw: Path | None) -> Split:
        """Return the public split, or nodes drawn by class."""
        if params.split_rule != "per-class":
            return super().split(records, params, raw)
        check_fold(self.manifest.name, params.fold, 1)
        assert records.node_labels is not None
        return Split(
            f"per-class-seed{params.split_seed}",
            "per-class",
            {"split_seed": params.split_seed},
            note=f"{A_CLASS} nodes of each class, {VAL} and {TEST:,} others, drawn as tunedGNN does",
            node_code=split_per_class(records.node_labels[0], params.split_seed),
        )

    def read(self, raw: Raw) -> dict[str, Array]:
        """Read the graph as PyTorch Geometric's ``Planetoid`` does."""
        # 1. Test nodes come last. In CiteSeer some of their numbers have no row: zeros.
        tested = _test_rows(raw)
        first = int(tested.min())
        missing = int(tested.max()) + 1 - first - len(tested)
        features = [_read_matrix(raw, name) for name in ("allx", "tx")]
        labels = [_read_matrix(raw, name) for name in ("ally", "ty")]
        if first != len(features[0]) or len(tested) != len(features[1]) or missing < 0:
            raise DamagedInput(
                f"{raw.current_item}: tested nodes {first:,} to {tested.max():,} do not follow the "
                f"{len(features[0]):,} others."
            )

        # 2. Rows of tx are in the order of test.index.
        arrays = []
        for others, rows in (features, labels):
            rows_in_order = np.zeros(
                (len(others) + len(rows) + missing, others.shape[1]), others.dtype
            )
            rows_in_order[: len(others)] = others
            rows_in_order[tested] = rows
            arrays.append(rows_in_order)
        x, y = arrays

        # 3. Neighbours: without loops, each once, by target and then source.
        neighbors = _read_pickle(raw, "graph")
        pairs = [(node, other) for node, row in neighbors.items() for other in row]
        source, target = np.array(pairs, np.int64).reshape(-1, 2).T
        codes = np.unique((target * len(y) + source)[source != target])
        target, source = np.divmod(codes, len(y))
        return {
            "x": x.astype(np.float32),
            "y": y.argmax(1),
            "edge_index": np.stack([source, target]),
        }

    def masks(self, raw: Raw, fold: int) -> list[Bools]:
        """Return the public split: nodes of ``x`` are train, the next 500 val."""
        tested = _test_rows(raw)
        train = len(_read_matrix(raw, "y"))
        nodes = np.arange(int(tested.max()) + 1)
        val = (nodes >= train) & (nodes < train + VAL)
        return [nodes < train, val, np.isin(nodes, tested)]


PIPELINE = PlanetoidPipeline


def split_per_class(labels: Array, seed: int) -> Array:
    """Return the part of each node, (N,): ``class_rand_splits`` of tunedGNN after ``fix_seed(seed)``.

    medium_graph/data_utils.py at 23f9604, number by number: it draws by ``torch.randperm``.
    """
    state = np.random.RandomState(seed)
    codes = np.full(len(labels), NO_PART, np.uint8)
    others = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[_torch_permutation(state, len(rows))]
        codes[rows[:A_CLASS]] = 0
        others.append(rows[A_CLASS:])
    rest = np.concatenate(others)
    rest = rest[_torch_permutation(state, len(rest))]
    codes[rest[:VAL]] = 1
    codes[rest[VAL : VAL + TEST]] = 2
    return codes


def _torch_permutation(state: np.random.RandomState, count: int) -> I64:
    """``torch.randperm`` after ``torch.manual_seed``: a Mersenne Twister and a shuffle from the front."""
    order = np.arange(count)
    for i in range(count - 1):
        word = int(state.randint(0, 2**32, dtype=np.uint32))
        other = i + word % (count - i)
        order[i], order[other] = order[other], order[i]
    return order


class _Sparse(Pending):
    """``scipy.sparse.csr_matrix``; its state has row pointers, columns and values."""

    __slots__ = ()

    def finish(self, state: Any) -> None:
        """Make the matrix dense; repeated entries of a cell add up."""
        from scipy.sparse import csr_array

        rows, columns = state["_shape"]
        ends, indices, values = state["indptr"], state["indices"], state["data"]
        if not 0 < rows * columns <= _MAX_VALUES:
            raise RefusedError(f"a matrix of {rows:,} × {columns:,} values")
        matrix = csr_array((values, indices, ends), shape=(rows, columns))
        matrix.check_format(full_check=True)  # a ValueError where the parts do not fit
        self.value = matrix.toarray()


_ALLOWED = {
    **NUMPY,
    "scipy.sparse.csr.csr_matrix": _Sparse,
    "collections.defaultdict": lambda *_: {},
    "__builtin__.list": refuse_calls("list"),
}


def _read_pickle(raw: Raw, name: str) -> Any:
    path = raw.path(f"*.{name}")
    return read_pickle(path.read_bytes(), _ALLOWED, name=path.name)


def _read_matrix(raw: Raw, name: str) -> Array:
    matrix = _read_pickle(raw, name)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        raise DamagedInput(f"{raw.current_item} is {type(matrix).__name__}, not a matrix.")
    return matrix


def _test_rows(raw: Raw) -> I64:
    text = raw.path("*.test.index").read_text("ascii")
    tested = np.array(text.split(), np.int64)
    if not len(tested) or len(np.unique(tested)) != len(tested) or tested.min() < 0:
        raise DamagedInput(f"{raw.current_item} is not a list of distinct nodes.")
    return tested
