"""A generated city in the layout of GraphLand: never real data, as the name of each column says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.files.reading import csv_bytes
from kmip_data.format.splits import PARTS
from kmip_data.pipelines.datasets.city_networks.sample import bent_grid
from kmip_data.pipelines.shared.sample_files import write_lines

DEFAULT_STREETS = 2_000
NUMERICAL = ("sample_length", "sample_limit", "sample_paved")
CATEGORICAL = ("sample_bus", "sample_surface")
SPLITS = {"RL": (0.1, 0.1), "RH": (0.5, 0.25)}  #: shares of train and val
MISSING = 0.03  #: share of values that are not known


def write_sample(folder: Path, _: object, limit: int | None, seed: int) -> None:
    """Write the tables of a road-like graph into ``folder``.

    ``limit`` is the number of streets, from 30.

    The speed depends on a street's limit and surface, and on the lengths of its neighbours.
    """
    n = max(30, DEFAULT_STREETS if limit is None else limit)
    rng = Generator(PCG64(seed))
    _, streets = bent_grid(n, rng)
    both_ways = rng.random(streets.shape[1]) < 0.3
    edges = np.concatenate([streets, streets[::-1, both_ways]], axis=1)

    length = rng.lognormal(4, 0.7, n)
    allowed = rng.choice([20, 30, 50, 80], n)
    surface = rng.integers(1, 5, n)
    degree = np.maximum(np.bincount(edges[0], minlength=n), 1)
    around = np.bincount(edges[0], length[edges[1]], n) / degree
    noise = rng.normal(0, 2, n)
    # A target that can be learned from features and neighbours.
    speed = 0.6 * allowed - 2 * surface + 6 * np.log1p(around) + noise
    paved = rng.beta(2, 2, n)
    for column in (length, paved, speed):
        column[rng.random(n) < MISSING] = np.nan
    bus = rng.integers(0, 2, n)

    info = [
        "# SAMPLE: generated, not the real data",
        "dataset_name: sample",
        "task: regression",
    ]
    kinds = {
        "numerical": NUMERICAL,
        "fraction": NUMERICAL[2:],
        "categorical": CATEGORICAL,
    }
    for kind, names in kinds.items():
        info.append(f"{kind}_features_names:")
        info += [f"- {name}" for name in names]
    info.append("target_name: sample_speed")
    write_lines(folder / "info.yaml", info)

    columns = (length, allowed, paved, bus, surface)
    features = dict(zip((*NUMERICAL, *CATEGORICAL), columns, strict=True))
    tables = {
        "features": features,
        "targets": {"sample_speed": speed},
    }
    for rule, (train, val) in SPLITS.items():
        # Draws below the fraction of train are train, below that of both val.
        draw = rng.permutation(n) / n
        part = (draw >= train).astype(int) + (draw >= train + val)
        tables[f"split_masks_{rule}"] = {name: part == code for code, name in enumerate(PARTS)}
    for name, table in tables.items():
        values = (column.tolist() for column in table.values())
        rows = zip(range(n), *values, strict=True)
        _write(folder / f"{name}.csv", ["node_id", *table], rows)
    _write(folder / "edgelist.csv", ["source", "target"], edges.T.tolist())


def _write(path: Path, header: list[str], rows: Iterable[Iterable[object]]) -> None:
    cells = (map(_text, row) for row in rows)
    path.write_bytes(csv_bytes(header, cells))


def _text(value: object) -> str:
    """Format six digits of a number; empty for NaN."""
    if isinstance(value, float):
        return f"{value:.6g}".replace("nan", "")
    return str(value)
