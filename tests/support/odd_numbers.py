"""Float32 numbers that searches stumble over."""

from __future__ import annotations

import numpy as np

KINDS = ("coarse", "near one", "extreme", "any bits", "mixed")
EXTREMES = [0.0, -0.0, 2.0**-149, -(2.0**-149), 1e-30, -1e-30, 1e19, -1e19, 3e38, -3e38]


def numbers(kind: str, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Float32 numbers of one kind: full of ties and near ties, or of what arithmetic stumbles over."""
    if kind == "coarse":
        return (generator.integers(-4, 5, shape) / 4).astype(np.float32)
    if kind == "near one":
        return (1 + generator.integers(0, 4, shape) * 2.0**-23).astype(np.float32)
    if kind == "extreme":
        return generator.choice(np.array(EXTREMES, np.float32), shape)
    if kind == "any bits":
        bits = generator.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
        return np.where(np.isfinite(bits), bits, np.float32(0.5))
    mixed = (numbers(of, generator, shape) for of in ("coarse", "extreme"))
    return np.where(generator.random(shape) < 0.5, *mixed)
