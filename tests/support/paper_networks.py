"""Sizes of the paper's datasets, as upstream's files have them."""

from __future__ import annotations

SHAPES = {  # columns, outputs, columns of edges
    "voc": (14, 21, 2),
    "coco": (14, 81, 2),
    "func": (9, 10, 3),
    "struct": (9, 11, 3),
    "city": (67, 10, None),
    "shapenet": (6, 50, None),
    "s3dis": (9, 13, None),
    "cifar10": (5, 10, 1),
    "malnet": (5, 5, None),
}


def shape(dataset: str) -> dict[str, int | None]:
    """Arguments of ``build_model`` for a dataset, whose name has one of the names in it; else a city."""
    found = next(
        (sizes for name, sizes in SHAPES.items() if name in dataset.lower()), SHAPES["city"]
    )
    return dict(zip(("in_channels", "num_classes", "edge_channels"), found, strict=True))
