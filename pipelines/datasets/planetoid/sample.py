"""Generated graph in the raw layout of Planetoid.

Pickles have the globals and opcodes of Python 2 and scipy 0.1x.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.manifest import Manifest
from kmip_data.pipelines.sample_drawings import draw_edges, draw_words
from kmip_data.pipelines.sample_writers import write_lines

MIN_NODES = 1_700  #: the public split has 1,500 nodes in addition to the train nodes


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the eight files of a graph with ``limit`` nodes, at least 1,700."""
    n = max(MIN_NODES, limit or 0)
    (width,) = manifest.layout.columns["node/x"].shape
    classes = manifest.layout.columns["node/y"].classes or 2
    rng = np.random.Generator(np.random.PCG64(seed))
    label = np.arange(n) % classes
    test_nodes = rng.permutation(np.arange(n - 1_000, n))
    train = 20 * classes

    x = np.zeros((n, width), np.float32)
    np.put_along_axis(x, draw_words(label, width, rng), 1, axis=1)
    y = np.eye(classes, dtype=np.int32)[label]

    # Both ends list a link, as published.
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for first, second in draw_edges(label, rng).tolist():
        neighbours[first].append(second)
        neighbours[second].append(first)

    stem = f"ind.{manifest.name}"
    for suffix, rows in (
        ("x", np.arange(train)),
        ("allx", np.arange(n - 1_000)),
        ("tx", test_nodes),
    ):
        (folder / f"{stem}.{suffix}").write_bytes(_pickle_sparse(x[rows]))
        (folder / f"{stem}.{suffix.replace('x', 'y')}").write_bytes(
            b"\x80\x02" + _pickle_array(y[rows]) + b"."
        )
    (folder / f"{stem}.graph").write_bytes(_pickle_lists(neighbours))
    write_lines(folder / f"{stem}.test.index", map(str, test_nodes))


def _pickle_sparse(dense: Array) -> bytes:
    rows, columns = dense.nonzero()
    counts = np.bincount(rows, minlength=len(dense))
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    state = b"}(" + _pickle_string("_shape") + b"(" + b"".join(map(_pickle_int, dense.shape)) + b"t"
    for name, array in (
        ("indptr", ends),
        ("indices", columns.astype(np.int32)),
        ("data", dense[rows, columns]),
    ):
        state += _pickle_string(name) + _pickle_array(array)
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"ub."


def _pickle_array(array: Array) -> bytes:
    reconstruct = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n("
        + _pickle_int(0)
        + b"t"
        + _pickle_string("b")
    )
    dtype = (
        b"cnumpy\ndtype\n("
        + _pickle_string(array.dtype.str[1:])
        + _pickle_int(0)
        + _pickle_int(1)
        + b"tR"
    )
    dtype += (
        b"("
        + _pickle_int(3)
        + _pickle_string("<")
        + b"NNN"
        + _pickle_int(-1) * 2
        + _pickle_int(0)
        + b"tb"
    )
    shape = b"(" + b"".join(map(_pickle_int, array.shape)) + b"t"
    data = array.tobytes()
    values = b"T" + struct.pack("<I", len(data)) + data
    return reconstruct + b"tR(" + _pickle_int(1) + shape + dtype + b"\x89" + values + b"tb"


def _pickle_lists(lists: list[list[int]]) -> bytes:
    items = b""
    for number, row in enumerate(lists):
        items += _pickle_int(number) + b"](" + b"".join(map(_pickle_int, row)) + b"e"
    return b"\x80\x02ccollections\ndefaultdict\n(c__builtin__\nlist\ntR(" + items + b"u."


def _pickle_int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _pickle_string(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode("ascii")
