"""Generated city in the layout of City-Networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64, I64, Array
from kmip_data.graphs.eccentricity import local_eccentricity
from kmip_data.pipelines.domains.cities import (
    mean_over_incoming_edges,
    quantile_labels,
    symmetrise_streets,
)
from kmip_data.pipelines.domains.city_splits import TEST, TRAIN, VAL, random_part_codes
from kmip_data.pipelines.graph_arrays.reverse_edges import interleave_reverse_edges
from kmip_data.pipelines.sample_writers import write_torch_file

DEFAULT_NODES = 2_000
WEST = 10.0  #: corner of the city, degrees
SOUTH = 50.0
STEP_DEGREES = 0.001  #: distance between crossings
STREET_FRACTION = 0.67  #: fraction of the grid edges that are streets
METRES_PER_DEGREE = np.array([71_500.0, 111_200.0])  #: per degree of longitude and latitude
CATEGORY_COUNTS = (2, 9, 3, 9)  #: categories of oneway, lanes, reversed, highway


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the tensors of a road-like graph with ``limit`` intersections, at least 30.

    Streets are longer in the east, so that labels can be learned from the coordinates.
    """
    n = max(30, DEFAULT_NODES if limit is None else limit)
    rng = Generator(PCG64(seed))
    lon_lat, streets = bent_grid(n, rng)
    difference = lon_lat[streets[0]] - lon_lat[streets[1]]
    length = np.linalg.norm(difference * METRES_PER_DEGREE, axis=1)
    columns = [
        length * rng.uniform(1.0, 1.4, len(length)),
        rng.choice([20.0, 30.0, 50.0], len(length)),
    ]
    columns += [_one_hot(rng, len(length), count) for count in CATEGORY_COUNTS]
    street_features = np.column_stack(columns).astype(np.float32)
    edge_index, edge_features = symmetrise_streets(streets, street_features, n)

    street_count = np.bincount(edge_index[0], minlength=n)
    land_use = _one_hot(rng, n, 9)
    node_features = np.column_stack([lon_lat, street_count, land_use]).astype(np.float32)
    street_means = [mean_over_incoming_edges(edge_index, column, n) for column in edge_features.T]
    eccentricity = local_eccentricity(edge_index, edge_features[:, 0], n, quiet=True)
    codes = random_part_codes(n)
    files: dict[str, Array] = {
        "node_features": node_features,
        "node_features_augmented": np.column_stack([node_features, *street_means]),
        "edge_indices": edge_index,
        "edge_features": edge_features,
        "10-chunk_16-hop_node_labels": quantile_labels(eccentricity, 10).astype(np.int64),
        "16-hop_eccentricities": eccentricity,
        "train_mask": codes == TRAIN,
        "valid_mask": codes == VAL,
        "test_mask": codes == TEST,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        write_torch_file(folder / f"{name}.pt", array)


def bent_grid(n: int, rng: Generator) -> tuple[F64, I64]:
    """Return coordinates (n, 2) and streets (2, S) of a connected part of a grid, shuffled."""
    # Use a larger grid, because missing streets disconnect some crossings.
    side = int(np.ceil(np.sqrt(1.7 * n))) + 3
    number = np.arange(side * side).reshape(side, side)
    horizontal = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    vertical = np.stack([number[:-1].ravel(), number[1:].ravel()])
    grid_streets = np.concatenate([horizontal, vertical], axis=1)
    grid_streets = grid_streets[:, rng.random(grid_streets.shape[1]) < STREET_FRACTION]

    crossings = _connected_crossings(grid_streets, side, n)
    new_number = np.full(side * side, -1)
    new_number[crossings] = rng.permutation(len(crossings))
    streets = new_number[grid_streets]

    # Shift crossings off the grid.
    column, row = np.divmod(crossings, side)
    east = column + 0.02 * column**2  # streets get longer
    shift = rng.uniform(-0.2, 0.2, (len(crossings), 2))
    positions = np.column_stack([east, row]) + shift
    lon_lat = np.empty((len(crossings), 2))
    lon_lat[new_number[crossings]] = np.array([WEST, SOUTH]) + STEP_DEGREES * positions
    return lon_lat, streets[:, (streets >= 0).all(axis=0)].astype(np.int64)


def _connected_crossings(streets: I64, side: int, n: int) -> I64:
    """Return ``n`` connected crossings, breadth-first from the middle."""
    from scipy import sparse

    count = side * side
    source, target = interleave_reverse_edges(streets.T)
    order = np.argsort(source, kind="stable")
    begins = np.searchsorted(source[order], np.arange(count + 1))
    arrays = (np.ones(len(order)), target[order], begins)
    graph = sparse.csr_array(arrays, (count, count))
    component = np.empty(0, np.int64)
    # Try starts until the component is large enough.
    for start in range(count // 2, count):
        component = sparse.csgraph.breadth_first_order(graph, start, return_predecessors=False)[:n]
        if len(component) == n:
            break
    return component


def _one_hot(rng: Generator, rows: int, categories: int) -> F64:
    weights = 0.5 ** np.arange(categories)
    category = rng.choice(categories, rows, p=weights / weights.sum())
    return np.eye(categories)[category]
