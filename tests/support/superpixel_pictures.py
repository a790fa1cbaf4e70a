"""Pictures of published size, about 480 superpixels, for measurements."""

from __future__ import annotations

from collections.abc import Iterator

from numpy.random import PCG64, Generator

from kmip_data.pipelines.samples.superpixel_graphs import Picture, make_picture


def make_pictures(count: int, *, classes: int) -> Iterator[Picture]:
    """Yield pictures made as those of a sample are."""
    rng = Generator(PCG64(0))
    for number in range(count):
        yield make_picture(number, classes, rng, side=(21, 23))
