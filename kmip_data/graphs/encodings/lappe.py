"""LapPE: eigenvectors and eigenvalues of the Laplacian, by a dense or a sparse solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F32, F64, I64, Array, Integers
from kmip_data.errors import OutOfResources
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding, check_edge_bounds
from kmip_data.runtime.memory import require_memory

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array
    from scipy.sparse.linalg import SuperLU

MAX_DENSE_NODES = 300  #: largest component for which the dense solver comes first (ADR 0212)
DENSE_BYTES = 16  #: memory of the dense solver per pair of nodes, measured on 4,000 nodes
_SHIFT = 1e-9  #: shift of the sparse solver below 0, in units of the largest degree
_TIE_TOLERANCE = 1e-6  #: relative difference below which two values count as equal
_MAX_SEARCHES = 20  #: maximum number of searches for missing eigenpairs


class Laplacian(Encoding):
    """LapPE: the K smallest eigenpairs of the Laplacian."""

    prefix = "lappe"
    parameter_letter = "K"
    bytes_per_node = 1_500
    help = "The K smallest eigenpairs of the Laplacian."
    definition_template = (
        "{parameter} smallest eigenpairs of D - A of the simple, undirected graph, "
        "the trivial one among them; NaN where there are fewer; the largest entry of a vector is positive"
    )
    note = (
        "Another CPU or version of BLAS may give other last bits, and another basis where eigenvalues are "
        "equal: LAPACK and ARPACK add in the order of its kernels."
    )

    def columns(self) -> tuple[Column, ...]:
        """``lappe_values`` (K) per graph and ``lappe_vectors`` (N, K)."""
        count = self.parameter
        return (
            self.column("graph", "lappe_values", count, finite=False, low=0.0),
            self.column("node", "lappe_vectors", count, finite=False, low=-1.0001, high=1.0001),
        )

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Compute eigenvectors and eigenvalues of each graph."""
        values = np.empty((len(graphs.node_ptr) - 1, self.parameter), np.float32)
        vectors = np.empty((int(graphs.node_ptr[-1]), self.parameter), np.float32)
        for g in range(len(values)):
            check()
            first, last = graphs.node_ptr[g : g + 2].tolist()
            start, stop = graphs.edge_ptr[g : g + 2].tolist()
            edges = graphs.edge_index[:, start:stop]
            try:
                encoded = laplacian_encoding(edges, last - first, self.parameter)
            except OutOfResources as error:
                name = graphs.keys[g] if graphs.keys else g
                error.message = f"Graph {name}: {error.message}"
                raise
            values[g] = encoded[0]
            vectors[first:last] = encoded[1]
        return {"graph/lappe_values": values, "node/lappe_vectors": vectors}


def laplacian_encoding(
    edge_index: Integers,
    num_nodes: int,
    count: int = 10,
    *,
    max_dense_nodes: int = MAX_DENSE_NODES,
) -> tuple[F32, F32]:
    """Return the ``count`` smallest eigenvalues of the Laplacian D − A and their eigenvectors.

    ``edge_index`` (2, E) has sources and targets; ``count`` is K, at least 1. Returns float32 (K,),
    ascending, and (N, K); entries without an eigenpair are NaN.

    A is the adjacency of the simple, undirected graph: directions, loops and repeated edges are
    ignored. The trivial pair (0, constant) comes first, as upstream. Eigenvectors have Euclidean
    length 1. Each connected component is solved separately, so an eigenvector is 0 outside its
    component. Equal eigenvalues are sorted by the lowest node of their component; within a
    component, the solver chooses their basis. The largest entry of an eigenvector is positive (the
    first one, if several are within 10⁻⁶); the encoder flips signs at random in training.

    Components of at most ``max_dense_nodes`` nodes are solved by LAPACK, larger ones by Lanczos on
    the sparsely factored inverse, or by LAPACK if Lanczos misses copies of an eigenvalue. Raises
    ``DamagedInput`` if an edge leads to a missing node; ``OutOfResources`` if the sparse solver
    finds too few pairs and memory is too small for the dense one.
    """
    check_edge_bounds(edge_index, num_nodes)
    values = np.full(count, np.nan, np.float32)
    vectors = np.full((num_nodes, count), np.nan, np.float32)
    adjacency = symmetric_adjacency(edge_index[0], edge_index[1], num_nodes)
    adjacency.sum_duplicates()
    adjacency.data[:] = 1  # the simple, undirected graph
    components = _connected_components(adjacency)
    pairs = []  # eigenvalue, component, vector

    # 1. One trivial pair per component.
    for c, nodes in enumerate(components):
        constant = np.full(len(nodes), len(nodes) ** -0.5)
        pairs.append((0.0, c, constant))

    # 2. Other pairs per component, dense up to 300 nodes (150 nodes: 1.0 ms dense, 2.1 ms sparse;
    #    600 nodes: 12.4 ms dense, 3.2 ms sparse).
    for c, nodes in enumerate(components):
        k = min(count - len(components), len(nodes) - 1)
        if k < 1:
            continue
        block = adjacency
        if len(components) > 1:
            block = adjacency[nodes][:, nodes]
        solution = None
        # The sparse solver needs more nodes than eigenvectors.
        if len(nodes) > max(max_dense_nodes, k + 2):
            solution = _eigenpairs_by_lanczos(block, k)
            if solution is None:
                require_memory(
                    DENSE_BYTES * len(nodes) ** 2,
                    f"LapPE of a component of {len(nodes):,} nodes with many equal eigenvalues",
                    "free some memory, or add another encoding, such as rwse20",
                )
        eigenvalues, eigenvectors = solution or _eigenpairs_by_lapack(block, k)
        for value, vector in zip(eigenvalues.tolist(), eigenvectors.T, strict=False):
            pairs.append((value, c, vector))

    # 3. Keep the K smallest. Rounding makes the eigenvalues of equal components tie; the sort is
    #    stable within a component.
    pairs.sort(key=lambda pair: (round(pair[0], 9), pair[1]))
    for k, (value, c, vector) in enumerate(pairs[:count]):
        values[k] = max(value, 0.0)
        vectors[:, k] = 0
        vectors[components[c], k] = _flip_to_positive_maximum(vector)
    return values, vectors


def symmetric_adjacency(source: Integers, target: Integers, num_nodes: int) -> csr_array:
    """Return the number of edges between two nodes in either direction, without loops: float64 (N, N)."""
    from scipy.sparse import csr_array

    ends = np.stack([source, target]).astype(np.int64)
    ends = ends[:, source != target]
    rows, columns = np.concatenate([ends, ends[::-1]], axis=1)
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=(num_nodes, num_nodes))


def _connected_components(adjacency: csr_array) -> list[I64]:
    """Return the nodes of each connected component, in the order of their lowest nodes."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(adjacency, directed=False)
    if count == 0:
        return []
    by_component = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label))
    components = np.split(by_component, ends[:-1])
    return sorted(components, key=lambda nodes: int(nodes[0]))


def _eigenpairs_by_lapack(adjacency: csr_array, count: int) -> tuple[F64, F64]:
    """Return the smallest nontrivial pairs of a connected graph, by LAPACK."""
    from scipy.linalg import eigh

    matrix = -adjacency.toarray()
    options = {"overwrite_a": True, "check_finite": False, "driver": "evr"}
    np.fill_diagonal(matrix, adjacency.sum(axis=1))
    values, vectors = eigh(matrix, subset_by_index=[1, count], **options)
    return values, vectors


def _eigenpairs_by_lanczos(adjacency: csr_array, count: int) -> tuple[F64, F64] | None:
    """Return the smallest nontrivial pairs of a connected graph, by Lanczos on the shifted inverse.

    Returns ``None`` if it does not find all pairs, which happens with highly multiple eigenvalues.

    The constant vector is projected out. Lanczos can miss copies of a multiple eigenvalue. So count
    the eigenvalues below the largest one by the inertia of a factorisation (Sylvester), and search
    for missing pairs orthogonally to the previous ones.
    """
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    nodes = adjacency.shape[0]
    degree = adjacency.sum(axis=1)
    matrix = csc_array(diags_array(degree) - adjacency)
    shift = -_SHIFT * float(degree.max())
    factors = _factorise_shifted(matrix, shift)
    constant = np.full((nodes, 1), nodes**-0.5)
    basis = constant
    values = np.zeros(0)
    start = np.random.Generator(np.random.PCG64(0)).standard_normal(nodes)
    missing = count
    for _ in range(_MAX_SEARCHES):
        # 1. Search orthogonally to the constant and all previous pairs.
        previous = basis

        def project(x: F64, previous: F64 = previous) -> F64:
            return x - previous @ (previous.T @ x)

        def solve(x: F64) -> F64:
            return project(factors.solve(project(x)))

        inverse = LinearOperator((nodes, nodes), matvec=solve, dtype=np.float64)
        try:
            _, new_vectors = eigsh(matrix, missing, sigma=shift, OPinv=inverse, v0=project(start))
        except ArpackError:
            return None

        # 2. Solve in the span of all vectors, which sorts previous and new pairs together.
        basis, _ = np.linalg.qr(np.concatenate([basis, project(new_vectors)], axis=1))
        vectors = basis[:, 1:]
        projected = vectors.T @ (matrix @ vectors)
        values, rotation = np.linalg.eigh((projected + projected.T) / 2)
        basis = np.concatenate([constant, vectors @ rotation], axis=1)

        # 3. Count the eigenvalues below the largest; one of them, 0, is the constant's.
        limit = values[count - 1] * (1 - _TIE_TOLERANCE)
        negative = np.count_nonzero(_factorise_shifted(matrix, limit).U.diagonal() < 0)
        missing = int(negative - 1 - np.count_nonzero(values < limit))
        if missing <= 0:
            return values[:count], basis[:, 1 : count + 1]
    return None


def _factorise_shifted(matrix: csc_array, shift: float) -> SuperLU:
    """Factorise ``matrix`` − shift without row exchanges, so that pivot signs give the inertia."""
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import splu

    shifted = csc_array(matrix - shift * eye_array(matrix.shape[0]))
    return splu(
        shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


def _flip_to_positive_maximum(vector: F64) -> F64:
    """Flip an eigenvector so that its first largest entry is positive."""
    size = np.abs(vector)
    first = int(np.argmax(size >= size.max() * (1 - _TIE_TOLERANCE)))
    return vector if vector[first] >= 0 else -vector


ENCODING = Laplacian
