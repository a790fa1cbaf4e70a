"""Citation graphs of Planetoid (Yang et al. 2016): Cora, CiteSeer and PubMed.

Raw layout: eight files ``ind.NAME.…``. Python 2 pickles have the sparse features of train nodes
(``x``), of all nodes except test nodes (``allx``) and of test nodes (``tx``), their one-hot labels
(``y``, ``ally``, ``ty``), and the neighbours of each node (``graph``). ``test.index`` lists the
test nodes in the order of ``tx``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, Array, Bools
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.base import RecordTable, Split
from kmip_data.pipelines.formats.pickles import (
    Pending,
    RefusedPickleError,
    read_pickle,
    refuse_calls,
)
from kmip_data.pipelines.formats.tensors import NUMPY_GLOBALS
from kmip_data.pipelines.graph_arrays.layout_reader import RawReader
from kmip_data.pipelines.layout_pipelines import FoldParams, GraphWithMasksPipeline
from kmip_data.pipelines.parameters import check_fold

VAL_NODES = 500
TEST_NODES = 1_000
TRAIN_PER_CLASS = 20  #: train nodes per class of a random split
_MAX_DENSE_VALUES = 2**27  #: maximum size of a dense matrix, 512 MiB


class PlanetoidSplitParams(FoldParams):
    """Parameters of the split."""

    random_rules = ("stratified", "per-class")

    split_rule: Literal["upstream", "per-class", "stratified"] = Field(  # type: ignore[assignment]
        default="upstream",
        description="upstream: the public split; per-class: 20 random train nodes per class, 500 other "
        "nodes for val and 1,000 for test, as in tunedGNN; stratified: the public split's sizes with "
        "equal fractions of the classes",
    )


class PlanetoidPipeline(GraphWithMasksPipeline[PlanetoidSplitParams]):
    """Pipeline of ``cora``, ``citeseer`` and ``pubmed``."""

    SplitParams = PlanetoidSplitParams

    def split(
        self, records: RecordTable, params: PlanetoidSplitParams, raw_folder: Path | None
    ) -> Split:
        """Return the public split, or one drawn by class."""
        if params.split_rule != "per-class":
            return super().split(records, params, raw_folder)
        check_fold(self.manifest.name, params.fold, 1)
        assert records.node_labels is not None
        return Split(
            f"per-class-seed{params.split_seed}",
            "per-class",
            {"split_seed": params.split_seed},
            note=f"{TRAIN_PER_CLASS} nodes per class, and {VAL_NODES} and {TEST_NODES:,} others, as in tunedGNN",
            part_codes=split_per_class(records.node_labels[0], params.split_seed),
        )

    def read(self, raw: RawReader) -> dict[str, Array]:
        """Read the graph like PyTorch Geometric's ``Planetoid``."""
        # 1. Test nodes come last. In CiteSeer some of them have no row, and zero features.
        test_nodes = _read_test_nodes(raw)
        first = int(test_nodes.min())
        missing = int(test_nodes.max()) + 1 - first - len(test_nodes)
        features = [_read_matrix(raw, name) for name in ("allx", "tx")]
        labels = [_read_matrix(raw, name) for name in ("ally", "ty")]
        if first != len(features[0]) or len(test_nodes) != len(features[1]) or missing < 0:
            raise DamagedInput(
                f"{raw.current_item}: test nodes {first:,} to {test_nodes.max():,} do not follow the "
                f"{len(features[0]):,} others."
            )

        # 2. Reorder the rows of tx, which follow test.index.
        arrays = []
        for other_rows, test_rows in (features, labels):
            rows_in_order = np.zeros(
                (len(other_rows) + len(test_rows) + missing, other_rows.shape[1]), other_rows.dtype
            )
            rows_in_order[: len(other_rows)] = other_rows
            rows_in_order[test_nodes] = test_rows
            arrays.append(rows_in_order)
        x, y = arrays

        # 3. Remove self-loops and duplicates, and sort by target and source.
        neighbours = _read_pickle(raw, "graph")
        pairs = [(node, other) for node, row in neighbours.items() for other in row]
        source, target = np.array(pairs, np.int64).reshape(-1, 2).T
        codes = np.unique((target * len(y) + source)[source != target])
        target, source = np.divmod(codes, len(y))
        return {
            "x": x.astype(np.float32),
            "y": y.argmax(1),
            "edge_index": np.stack([source, target]),
        }

    def masks(self, raw: RawReader, fold: int) -> list[Bools]:
        """Return the public split: nodes of ``x`` for train, the next 500 for val."""
        test_nodes = _read_test_nodes(raw)
        train = len(_read_matrix(raw, "y"))
        nodes = np.arange(int(test_nodes.max()) + 1)
        val = (nodes >= train) & (nodes < train + VAL_NODES)
        return [nodes < train, val, np.isin(nodes, test_nodes)]


PIPELINE = PlanetoidPipeline


def split_per_class(labels: Array, seed: int) -> Array:
    """Return the part of each node, (N,), by tunedGNN's ``class_rand_splits`` after ``fix_seed(seed)``.

    Reproduces medium_graph/data_utils.py at 23f9604, which draws with ``torch.randperm``.
    """
    state = np.random.RandomState(seed)
    codes = np.full(len(labels), NO_PART, np.uint8)
    not_train = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[_torch_permutation(state, len(rows))]
        codes[rows[:TRAIN_PER_CLASS]] = 0
        not_train.append(rows[TRAIN_PER_CLASS:])
    remaining = np.concatenate(not_train)
    remaining = remaining[_torch_permutation(state, len(remaining))]
    codes[remaining[:VAL_NODES]] = 1
    codes[remaining[VAL_NODES : VAL_NODES + TEST_NODES]] = 2
    return codes


def _torch_permutation(state: np.random.RandomState, count: int) -> I64:
    """Reproduce ``torch.randperm``: a Mersenne Twister and a shuffle from the front."""
    order = np.arange(count)
    for i in range(count - 1):
        word = int(state.randint(0, 2**32, dtype=np.uint32))
        other = i + word % (count - i)
        order[i], order[other] = order[other], order[i]
    return order


class _SparseMatrix(Pending):
    """Pending ``scipy.sparse.csr_matrix``; its state has row pointers, columns and values."""

    __slots__ = ()

    def finish(self, state: Any) -> None:
        """Convert the matrix to a dense array, adding duplicate entries."""
        from scipy.sparse import csr_array

        rows, columns = state["_shape"]
        ends, indices, values = state["indptr"], state["indices"], state["data"]
        if not 0 < rows * columns <= _MAX_DENSE_VALUES:
            raise RefusedPickleError(f"a matrix of {rows:,} × {columns:,} values")
        matrix = csr_array((values, indices, ends), shape=(rows, columns))
        matrix.check_format(full_check=True)  # raises ValueError if the parts do not fit
        self.value = matrix.toarray()


_ALLOWED_GLOBALS = {
    **NUMPY_GLOBALS,
    "scipy.sparse.csr.csr_matrix": _SparseMatrix,
    "collections.defaultdict": lambda *_: {},
    "__builtin__.list": refuse_calls("list"),
}


def _read_pickle(raw: RawReader, name: str) -> Any:
    path = raw.find_path(f"*.{name}")
    return read_pickle(path.read_bytes(), _ALLOWED_GLOBALS, name=path.name)


def _read_matrix(raw: RawReader, name: str) -> Array:
    matrix = _read_pickle(raw, name)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        raise DamagedInput(f"{raw.current_item} is {type(matrix).__name__}, not a matrix.")
    return matrix


def _read_test_nodes(raw: RawReader) -> I64:
    text = raw.find_path("*.test.index").read_text("ascii")
    test_nodes = np.array(text.split(), np.int64)
    if not len(test_nodes) or len(np.unique(test_nodes)) != len(test_nodes) or test_nodes.min() < 0:
        raise DamagedInput(f"{raw.current_item} is not a list of distinct nodes.")
    return test_nodes
