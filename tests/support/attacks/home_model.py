"""Required content of the builds of a home, whatever happened to them: records, splits and columns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import expect_success

from kmip_data.format.card import read_card
from kmip_data.format.schema import View
from kmip_data.reading.dataset import ShardedDataset

GRAPHS = 6
SIZE = 4
EDGES = "graph,source,target\n" + "".join(
    f"g{graph},{i},{(i + 1) % SIZE}\n" for graph in range(GRAPHS) for i in range(SIZE)
)
NODES = "graph,node,mass,east,north\n" + "".join(
    f"g{graph},{i},{graph + i / 8},{i},{graph * i / 4}\n"
    for graph in range(GRAPHS)
    for i in range(SIZE)
)
CLASSES = ("a", "b")
LABELS = "graph,label\n" + "".join(f"g{graph},{CLASSES[graph % 2]}\n" for graph in range(GRAPHS))
COLUMNS = ("rwse3", "lappe2")
PARTS = ("train", "val", "test")
SEEDS = (0, 1, 2)  #: seeds of the splits of the user's own graphs; the first is the usual one
#: Dataset, and the options that choose the build.
SPECS = {
    "sample": ("build", "zinc", "--sample", "--limit", "5"),
    "less": ("build", "zinc", "--sample", "--limit", "4"),
    "own": ("build", "graphs", "--name", "own", "--archive"),
}
PLACES = View(attribute="pos", source="node/x", start=1, stop=3)  #: positions of the user's nodes
Values = dict[str, bytes]
Parts = dict[str, list[str]]


@dataclass(frozen=True)
class Truth:
    """Content of an undisturbed build."""

    records: dict[str, Values]  #: by key
    parts: dict[int, Parts]  #: keys of each part, by the seed of the split


@dataclass
class Known:
    """A build that the model knows, by its folder."""

    spec: str
    columns: set[str] = field(default_factory=set)
    default: int = SEEDS[0]  #: seed of its default split
    seeds: set[int] = field(default_factory=lambda: {SEEDS[0]})  #: seeds of all its splits
    #: Content and time of each damaged file before its damage.
    damaged: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    unsure: bool = False  #: a killed command may have written part of something
    finished: bool = True
    removing: bool = False

    @property
    def sound(self) -> bool:
        """True if nothing happened to it."""
        return self.finished and not self.unsure and not self.damaged and not self.removing


def split_options(spec: str, seed: int) -> tuple[str, ...]:
    """Return the options that ask for a split; a dataset of ours has its published one."""
    if spec != "own" or seed == SEEDS[0]:
        return ()
    return ("--split-rule", "random", "--split-seed", str(seed))


def values_of(item: Any) -> Values:
    return {name: np.asarray(item[name]).tobytes() for name in item.keys()}  # noqa: SIM118


def attributes(folder: Path, columns: Iterable[str]) -> list[str]:
    """Return names of stored attributes of a build, and of added columns."""
    stored = [column.attribute for column in read_card(folder).schema_.columns]
    return [*stored, "edge_index", *columns]


def opened(
    folder: Path,
    columns: Iterable[str] = (),
    part: str | None = None,
    split_name: str | None = None,
) -> ShardedDataset:
    """Open stored attributes and added columns of a build, with places and lengths where it has them."""
    names = attributes(folder, columns)
    is_users = read_card(folder).dataset == "own"
    return ShardedDataset(
        folder,
        part,
        columns=[*names, *(["pos"] if is_users else [])],
        views=(PLACES,) if is_users else (),
        edge_lengths=is_users,
    )


def keys_by_part(dataset: ShardedDataset) -> Parts:
    """Return the keys of each part of the split of a dataset of all records."""
    keys = dataset.keys
    positions = dataset.get_idx_split().values()
    return {
        part: [keys[position] for position in chosen]
        for part, chosen in zip(PARTS, positions, strict=True)
    }


def check_own(dataset: ShardedDataset) -> None:
    """Compare the user's own graphs with the tables above, so that what is read first is right, too."""
    assert dataset.keys == [f"g{graph}" for graph in range(GRAPHS)]
    ring = [list(range(SIZE)), [(i + 1) % SIZE for i in range(SIZE)]]
    for graph, item in enumerate(dataset):
        places = [(i, graph * i / 4) for i in range(SIZE)]
        lengths = [
            math.dist(places[source], places[target]) for source, target in zip(*ring, strict=True)
        ]
        assert item.x.tolist() == [[graph + i / 8, *places[i]] for i in range(SIZE)]
        assert item.edge_index.tolist() == ring
        assert item.y.flatten().tolist() == [graph % 2]
        assert item.pos.tolist() == [list(place) for place in places]
        assert item.edge_attr.flatten().tolist() == pytest.approx(lengths)


def make_truths(folder: Path) -> tuple[Path, dict[str, Truth]]:
    """Build each of :data:`SPECS` undisturbed; return the source of the user's graphs and what is held."""
    source = folder / "graphs"
    source.mkdir(parents=True)
    tables = {"edges.csv": EDGES, "nodes.csv": NODES, "graphs.csv": LABELS}
    for name, text in tables.items():
        (source / name).write_text(text)

    truths = {}
    for spec, line in SPECS.items():
        more = (source,) if spec == "own" else ()
        parts = {}
        for seed in SEEDS if spec == "own" else SEEDS[:1]:
            target = folder / f"{spec}-{seed}"
            options = ("--output", target, "--home", folder / "home", "--jobs", "1", "-q")
            expect_success(*line, *more, *options, *split_options(spec, seed))
            parts[seed] = keys_by_part(ShardedDataset(target))
        expect_success("encode", target, *COLUMNS, "--jobs", "1", "-q")
        items = opened(target, COLUMNS)
        if spec == "own":
            check_own(items)
        records = {key: values_of(item) for key, item in zip(items.keys, items, strict=True)}
        truths[spec] = Truth(records, parts)
    return source, truths
