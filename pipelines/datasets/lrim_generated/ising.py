"""Long-range Ising model on a periodic L × L grid: couplings, edges and energies.

The coupling of two nodes is J = 1 / r^(2 + sigma), where r is the Euclidean distance to the nearest
periodic image. The energy of spins s is -sum over pairs of J_ij s_i s_j.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.runtime.parallel import njit_nogil


def couplings_by_displacement(size: int, sigma: float) -> F64:
    """Return J for each displacement (rows, columns) modulo L, (L, L); 0 for no displacement."""
    steps = np.minimum(np.arange(size), size - np.arange(size))
    squares = np.add.outer(steps**2, steps**2)
    # Powers of floats differ between CPUs; decimals do not.
    exponent = -(2 + Decimal(str(sigma))) / 2
    values = {0: 0.0}
    for square in np.unique(squares)[1:].tolist():
        values[square] = float(Decimal(square) ** exponent)
    return np.array([values[square] for square in squares.ravel().tolist()]).reshape(squares.shape)


def grid_edges(size: int) -> I64:
    """Return the sorted edges to the four nearest nodes, in both directions, (2, 4·L²)."""
    node = np.arange(size * size).reshape(size, size)
    neighbours = [np.roll(node, shift, axis) for axis in (0, 1) for shift in (1, -1)]
    target = np.sort(np.stack(neighbours, axis=-1).reshape(-1, 4), axis=1)
    return np.stack([np.repeat(node, 4), target.ravel()])


def half_flip_energies(spins: Array, table: F64) -> F64:
    """Return s_i · sum_j J_ij s_j of each node, (L, L), for spins of -1 and 1.

    This is the benchmark's target, half the energy needed to flip the spin.
    """
    field = np.zeros(spins.shape)
    _add_fields(np.ascontiguousarray(spins, np.float64), table, field)
    return spins * field


@njit_nogil()
def _add_fields(spins: F64, table: F64, field: F64) -> None:
    # An FFT would round differently on other CPUs. Here each node adds its L² terms in a fixed
    # order, and the innermost loop, over nodes, is vectorised.
    size = len(spins)
    for down in range(size):
        for right in range(size):
            coupling = table[down, right]
            for row in range(size):
                other = (row + down) % size
                for column in range(size - right):
                    field[row, column] += coupling * spins[other, column + right]
                for column in range(size - right, size):
                    field[row, column] += coupling * spins[other, column + right - size]
