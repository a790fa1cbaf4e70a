"""Generated city in the layout of City-Networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64, Array
from kmip_data.graphs.eccentricity import local_eccentricity
from kmip_data.pipelines.domains.cities import (
    mean_over_incoming_edges,
    quantile_labels,
    symmetrise_streets,
)
from kmip_data.pipelines.domains.city_splits import TEST, TRAIN, VAL, random_part_codes
from kmip_data.pipelines.sample_drawings import draw_streets
from kmip_data.pipelines.sample_writers import write_torch_file

DEFAULT_NODES = 2_000
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
    lon_lat, streets = draw_streets(n, rng)
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


def _one_hot(rng: Generator, rows: int, categories: int) -> F64:
    weights = 0.5 ** np.arange(categories)
    category = rng.choice(categories, rows, p=weights / weights.sum())
    return np.eye(categories)[category]
