"""Generated city in the layout of GraphLand; the column names mark it as a sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.sample_drawings import draw_part_codes, draw_streets
from kmip_data.pipelines.sample_writers import write_lines

DEFAULT_STREETS = 2_000
INFO = """\
# SAMPLE: generated, not the real data
dataset_name: sample
task: regression
numerical_features_names:
- sample_length
- sample_limit
- sample_paved
fraction_features_names:
- sample_paved
categorical_features_names:
- sample_bus
- sample_surface
target_name: sample_speed
"""
SPLIT_FRACTIONS = {"RL": (0.1, 0.1), "RH": (0.5, 0.25)}  #: fractions of train and val
MISSING_FRACTION = 0.03  #: missing values of a column


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the tables of a road-like graph with ``limit`` streets, at least 30.

    The speed depends on a street's limit and surface, and on the lengths of its neighbours.
    """
    import pandas as pd

    n = max(30, limit or DEFAULT_STREETS)
    rng = Generator(PCG64(seed))
    _, streets = draw_streets(n, rng)
    both_ways = rng.random(streets.shape[1]) < 0.3
    edges = np.concatenate([streets, streets[::-1, both_ways]], axis=1)

    length = rng.lognormal(4, 0.7, n)
    speed_limit = rng.choice([20, 30, 50, 80], n)
    surface = rng.integers(1, 5, n)
    degree = np.maximum(np.bincount(edges[0], minlength=n), 1)
    neighbour_length = np.bincount(edges[0], length[edges[1]], n) / degree
    noise = rng.normal(0, 2, n)
    speed = 0.6 * speed_limit - 2 * surface + 6 * np.log1p(neighbour_length) + noise
    paved = rng.beta(2, 2, n)
    for column in (length, paved, speed):
        column[rng.random(n) < MISSING_FRACTION] = np.nan
    bus = rng.integers(0, 2, n)

    write_lines(folder / "info.yaml", INFO.splitlines())
    tables = {
        "features": {
            "sample_length": length,
            "sample_limit": speed_limit,
            "sample_paved": paved,
            "sample_bus": bus,
            "sample_surface": surface,
        },
        "targets": {"sample_speed": speed},
    }
    for rule, fractions in SPLIT_FRACTIONS.items():
        part = draw_part_codes(n, fractions, rng)
        tables[f"split_masks_{rule}"] = {name: part == code for code, name in enumerate(PARTS)}
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        pd.DataFrame(table).to_csv(path, index_label="node_id", float_format="%.6g")
    ends = pd.DataFrame(edges.T, columns=["source", "target"])
    ends.to_csv(folder / "edgelist.csv", index=False)
