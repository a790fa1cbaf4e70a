"""A generated city in the layout of City-Networks: never real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64, I64, Array
from kmip_data.graphs.eccentricity import local_eccentricity
from kmip_data.pipelines.domains.cities import chunk_labels, mean_over_streets, symmetrise_streets
from kmip_data.pipelines.domains.city_splits import TEST, TRAIN, VAL, split_codes
from kmip_data.pipelines.graph_arrays.reverse_edges import interleave_reverse_edges
from kmip_data.pipelines.sample_writers import write_torch_file

DEFAULT_NODES = 2_000
WEST = 10.0  #: corner of the city, degrees
SOUTH = 50.0
STEP = 0.001  #: between crossings, degrees
STREET_FRACTION = 0.67  #: share of the grid edges that are streets
#: Metres of a degree of longitude and latitude there.
DEGREE = np.array([71_500.0, 111_200.0])
CATEGORIES = (2, 9, 3, 9)  #: numbers of categories of oneway, lanes, reversed, highway


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the tensors of a road-like graph into ``folder``: a bent grid with a third of its sides missing.

    Streets are longer in the east, so that labels can be learned from the coordinates. ``limit`` is the
    number of intersections, at least 30 and by default 2,000.
    """
    n = max(30, DEFAULT_NODES if limit is None else limit)
    rng = Generator(PCG64(seed))
    lon_lat, streets = bent_grid(n, rng)
    difference = lon_lat[streets[0]] - lon_lat[streets[1]]
    length = np.linalg.norm(difference * DEGREE, axis=1)
    columns = [
        length * rng.uniform(1.0, 1.4, len(length)),
        rng.choice([20.0, 30.0, 50.0], len(length)),
    ]
    columns += [_one_hot(rng, len(length), count) for count in CATEGORIES]
    street_features = np.column_stack(columns).astype(np.float32)
    edge_index, edge_features = symmetrise_streets(streets, street_features, n)

    street_count = np.bincount(edge_index[0], minlength=n)
    land_use = _one_hot(rng, n, 9)
    node_features = np.column_stack([lon_lat, street_count, land_use]).astype(np.float32)
    around = [mean_over_streets(edge_index, column, n) for column in edge_features.T]
    eccentricity = local_eccentricity(
        edge_index,
        edge_features[:, 0],
        n,
        quiet=True,
    )
    codes = split_codes(n)
    files: dict[str, Array] = {
        "node_features": node_features,
        "node_features_augmented": np.column_stack([node_features, *around]),
        "edge_indices": edge_index,
        "edge_features": edge_features,
        "10-chunk_16-hop_node_labels": chunk_labels(eccentricity, 10).astype(np.int64),
        "16-hop_eccentricities": eccentricity,
        "train_mask": codes == TRAIN,
        "valid_mask": codes == VAL,
        "test_mask": codes == TEST,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        write_torch_file(folder / f"{name}.pt", array)


def bent_grid(n: int, rng: Generator) -> tuple[F64, I64]:
    """Return places (n, 2) and streets (2, S) of a connected part of the grid, numbered at random."""
    # More crossings than are wanted: a third of the sides is missing, and parts fall off.
    side = int(np.ceil(np.sqrt(1.7 * n))) + 3
    number = np.arange(side * side).reshape(side, side)
    to_the_right = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    downwards = np.stack([number[:-1].ravel(), number[1:].ravel()])
    sides = np.concatenate([to_the_right, downwards], axis=1)
    sides = sides[:, rng.random(sides.shape[1]) < STREET_FRACTION]

    chosen = _connected_part(sides, side, n)
    new = np.full(side * side, -1)
    new[chosen] = rng.permutation(len(chosen))
    streets = new[sides]

    # Nothing lies on the exact grid, and no crossing on another one.
    column, row = np.divmod(chosen, side)
    east = column + 0.02 * column**2  # streets get longer
    shift = rng.uniform(-0.2, 0.2, (len(chosen), 2))
    places = np.column_stack([east, row]) + shift
    lon_lat = np.empty((len(chosen), 2))
    lon_lat[new[chosen]] = np.array([WEST, SOUTH]) + STEP * places
    return lon_lat, streets[:, (streets >= 0).all(axis=0)].astype(np.int64)


def _connected_part(sides: I64, side: int, n: int) -> I64:
    """Return ``n`` crossings that are connected, breadth first from the middle on."""
    from scipy import sparse

    count = side * side
    source, target = interleave_reverse_edges(sides.T)
    order = np.argsort(source, kind="stable")
    begins = np.searchsorted(source[order], np.arange(count + 1))
    arrays = (np.ones(len(order)), target[order], begins)
    graph = sparse.csr_array(arrays, (count, count))
    component = np.empty(0, np.int64)
    # Until a start lies in a part that is large enough.
    for start in range(count // 2, count):
        component = sparse.csgraph.breadth_first_order(graph, start, return_predecessors=False)[:n]
        if len(component) == n:
            break
    return component


def _one_hot(rng: Generator, rows: int, categories: int) -> F64:
    weights = 0.5 ** np.arange(categories)
    chosen = rng.choice(categories, rows, p=weights / weights.sum())
    return np.eye(categories)[chosen]
