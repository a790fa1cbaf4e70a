"""Citation graphs of Planetoid (Yang et al. 2016): Cora, CiteSeer and PubMed.

Raw layout: eight files ``ind.NAME.…``. Pickles of Python 2: sparse features of train nodes (``x``),
of all nodes except test (``allx``) and of test nodes (``tx``), their one-hot labels (``y``,
``ally``, ``ty``), and the neighbours of each node (``graph``). Text: the numbers of test nodes
(``test.index``), in the order of ``tx``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, Array, Bools
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import NO_PART
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Records, Split, no_folds
from kmip_data.pipelines.formats.pickles import Pending, RefusedError, never_called, read_pickle
from kmip_data.pipelines.formats.tensors import NUMPY
from kmip_data.pipelines.shared.sample_files import write_lines
from kmip_data.pipelines.short import FoldParams, Raw, ShortPipeline

VAL, TEST = 500, 1_000  #: nodes
A_CLASS = 20  #: train nodes per class of a drawn split
_MOST_VALUES = 2**27  #: of a matrix that is made dense: 512 MiB


class PlanetoidSplitParams(FoldParams):
    """Parameters of the split."""

    seeded = ("stratified", "per-class")

    split: Literal["upstream", "per-class", "stratified"] = Field(  # type: ignore[assignment]
        default="upstream",
        description="upstream: the public split; per-class: 20 nodes of each class drawn to train, "
        "500 of the others to val, 1,000 to test, as tunedGNN draws them; stratified: the public "
        "split's sizes with equal shares of the classes",
    )


class PlanetoidPipeline(ShortPipeline[PlanetoidSplitParams]):
    """Pipeline of ``cora``, ``citeseer`` and ``pubmed``."""

    SplitParams = PlanetoidSplitParams

    def split(self, records: Records, params: PlanetoidSplitParams, raw: Path | None) -> Split:
        """Return the public split, or nodes drawn by class."""
        if params.split != "per-class":
            return super().split(records, params, raw)
        if params.fold:
            raise no_folds(self.manifest.name)
        assert records.node_labels is not None
        return Split(
            f"per-class-seed{params.split_seed}",
            "per-class",
            {"split_seed": params.split_seed},
            note=f"{A_CLASS} nodes of each class, {VAL} and {TEST:,} others, drawn as tunedGNN does",
            node_code=per_class(records.node_labels[0], params.split_seed),
        )

    def read(self, raw: Raw) -> dict[str, Array]:
        """Read the graph as PyTorch Geometric's ``Planetoid`` does."""
        # 1. Test nodes come last. In CiteSeer some of their numbers have no row: zeros.
        tested = _tested(raw)
        first = int(tested.min())
        missing = int(tested.max()) + 1 - first - len(tested)
        features = [_matrix(raw, name) for name in ("allx", "tx")]
        labels = [_matrix(raw, name) for name in ("ally", "ty")]
        if first != len(features[0]) or len(tested) != len(features[1]) or missing < 0:
            raise DamagedInput(
                f"{raw.place}: tested nodes {first:,} to {tested.max():,} do not follow the "
                f"{len(features[0]):,} others."
            )

        # 2. Rows of tx are in the order of test.index.
        arrays = []
        for others, rows in (features, labels):
            every = np.zeros((len(others) + len(rows) + missing, others.shape[1]), others.dtype)
            every[: len(others)] = others
            every[tested] = rows
            arrays.append(every)
        x, y = arrays

        # 3. Neighbours: without loops, each once, by target and then source.
        neighbors = _pickle(raw, "graph")
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
        tested = _tested(raw)
        train = len(_matrix(raw, "y"))
        nodes = np.arange(int(tested.max()) + 1)
        val = (nodes >= train) & (nodes < train + VAL)
        return [nodes < train, val, np.isin(nodes, tested)]


PIPELINE = PlanetoidPipeline


def per_class(labels: Array, seed: int) -> Array:
    """Return the part of each node, (N,): ``class_rand_splits`` of tunedGNN after ``fix_seed(seed)``.

    medium_graph/data_utils.py at 23f9604, number by number: it draws by ``torch.randperm``.
    """
    state = np.random.RandomState(seed)
    codes = np.full(len(labels), NO_PART, np.uint8)
    others = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[_permutation(state, len(rows))]
        codes[rows[:A_CLASS]] = 0
        others.append(rows[A_CLASS:])
    rest = np.concatenate(others)
    rest = rest[_permutation(state, len(rest))]
    codes[rest[:VAL]] = 1
    codes[rest[VAL : VAL + TEST]] = 2
    return codes


def _permutation(state: np.random.RandomState, count: int) -> I64:
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
        if not 0 < rows * columns <= _MOST_VALUES:
            raise RefusedError(f"a matrix of {rows:,} × {columns:,} values")
        matrix = csr_array((values, indices, ends), shape=(rows, columns))
        matrix.check_format(full_check=True)  # a ValueError where the parts do not fit
        self.value = matrix.toarray()


_ALLOWED = {
    **NUMPY,
    "scipy.sparse.csr.csr_matrix": _Sparse,
    "collections.defaultdict": lambda *_: {},
    "__builtin__.list": never_called("list"),
}


def _pickle(raw: Raw, name: str) -> Any:
    path = raw.path(f"*.{name}")
    return read_pickle(path.read_bytes(), _ALLOWED, name=path.name)


def _matrix(raw: Raw, name: str) -> Array:
    matrix = _pickle(raw, name)
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
        raise DamagedInput(f"{raw.place} is {type(matrix).__name__}, not a matrix.")
    return matrix


def _tested(raw: Raw) -> I64:
    text = raw.path("*.test.index").read_text("ascii")
    tested = np.array(text.split(), np.int64)
    if not len(tested) or len(np.unique(tested)) != len(tested) or tested.min() < 0:
        raise DamagedInput(f"{raw.place} is not a list of distinct nodes.")
    return tested


# --- Sample ---------------------------------------------------------------------------------------

# A generated graph in the raw layout of Planetoid: never the real data.
#
# Pickles have the globals and opcodes that Python 2 and scipy 0.1x wrote.

LEAST = 1_700  #: the public split takes 1,500 nodes besides those that train
WORDS = 12  #: of a node; half of them its class decides


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the eight files; ``limit`` is the number of nodes, from 1,700."""
    n = max(LEAST, limit or 0)
    (width,) = manifest.layout.columns["node/x"].shape
    classes = manifest.layout.columns["node/y"].classes or 2
    rng = np.random.Generator(np.random.PCG64(seed))
    label = np.arange(n) % classes
    tested = rng.permutation(np.arange(n - 1_000, n))
    train = 20 * classes

    x = np.zeros((n, width), np.float32)
    for node in range(n):
        own = rng.choice(width // classes, WORDS // 2, replace=False) * classes + label[node]
        x[node, [*own, *rng.integers(0, width, WORDS // 2)]] = 1
    y = np.eye(classes, dtype=np.int32)[label]

    # Most links join a class; each is in the lists of both ends, as published.
    neighbors: list[list[int]] = [[] for _ in range(n)]
    for first, second in rng.integers(0, n, (6 * n, 2)).tolist():
        if label[first] == label[second] or rng.random() < 0.1:
            neighbors[first].append(second)
            neighbors[second].append(first)

    stem = f"ind.{manifest.name}"
    for end, rows in (
        ("x", np.arange(train)),
        ("allx", np.arange(n - 1_000)),
        ("tx", tested),
    ):
        (folder / f"{stem}.{end}").write_bytes(_sparse(x[rows]))
        (folder / f"{stem}.{end.replace('x', 'y')}").write_bytes(
            b"\x80\x02" + _array(y[rows]) + b"."
        )
    (folder / f"{stem}.graph").write_bytes(_lists(neighbors))
    write_lines(folder / f"{stem}.test.index", map(str, tested))


def _sparse(dense: Array) -> bytes:
    rows, columns = dense.nonzero()
    counts = np.bincount(rows, minlength=len(dense))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    state = b"}(" + _text("_shape") + b"(" + b"".join(map(_int, dense.shape)) + b"t"
    for name, array in (
        ("indptr", ends),
        ("indices", columns.astype(np.int32)),
        ("data", dense[rows, columns]),
    ):
        state += _text(name) + _array(array)
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"ub."


def _array(array: Array) -> bytes:
    made = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + _int(0) + b"t" + _text("b")
    )
    dtype = b"cnumpy\ndtype\n(" + _text(array.dtype.str[1:]) + _int(0) + _int(1) + b"tR"
    dtype += b"(" + _int(3) + _text("<") + b"NNN" + _int(-1) * 2 + _int(0) + b"tb"
    shape = b"(" + b"".join(map(_int, array.shape)) + b"t"
    data = array.tobytes()
    values = b"T" + struct.pack("<I", len(data)) + data
    return made + b"tR(" + _int(1) + shape + dtype + b"\x89" + values + b"tb"


def _lists(lists: list[list[int]]) -> bytes:
    items = b""
    for number, row in enumerate(lists):
        items += _int(number) + b"](" + b"".join(map(_int, row)) + b"e"
    return b"\x80\x02ccollections\ndefaultdict\n(c__builtin__\nlist\ntR(" + items + b"u."


def _int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode("ascii")
