"""Swendsen-Wang sampler of the long-range Ising model, in time proportional to the nodes.

Parallel spins are joined with probability 1 - exp(-2 J / T), the probability of an event in a Poisson process
of rate 2 J / T. Each node draws its number of events, with mean sum J / T, and the other node of
each event from an alias table of J. Both ends draw each pair, which gives the rate (Luijten and
Blöte, 1995; Fukui and Todo, 2009). Then each cluster takes a random sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from kmip_data.arrays import F64, I8, I64
from kmip_data.runtime.parallel import njit_nogil

Rng = np.random.Generator


@dataclass(frozen=True)
class BondTables:
    """Tables for drawing the bonds of nodes at a temperature; equal on every CPU."""

    cumulative: F64  #: cumulative distribution of the bonds per node
    keep_probability: F64  #: (L²,) probability to keep a uniformly drawn displacement
    alias: I64  #: (L²,) displacement that replaces it otherwise

    @classmethod
    def at_temperature(cls, table: F64, temperature: float) -> BondTables:
        """Return the tables for couplings (L, L)."""
        total = math.fsum(table.ravel())
        return cls(poisson_table(total / temperature), *alias_table(table.ravel()))


def poisson_table(mean: float) -> F64:
    """Return the cumulative Poisson distribution; the last value is 1."""
    probability = float((-Decimal(mean)).exp())
    sums = [probability]
    while probability > 1e-20:
        probability *= mean / len(sums)
        sums.append(sums[-1] + probability)
    sums[-1] = 1.0
    return np.array(sums)


def alias_table(weights: F64) -> tuple[F64, I64]:
    """Return Walker's alias tables of weights (N,): probability to keep an entry, and its alias."""
    keep_probability = weights * (len(weights) / math.fsum(weights))
    alias = np.arange(len(weights))
    small = np.flatnonzero(keep_probability < 1).tolist()
    large = np.flatnonzero(keep_probability >= 1).tolist()
    while small and large:
        low = small.pop()
        high = large[-1]
        alias[low] = high
        keep_probability[high] -= 1 - keep_probability[low]
        if keep_probability[high] < 1:
            small.append(large.pop())
    keep_probability[small + large] = 1  # 1 up to rounding
    return keep_probability, alias


def random_spins(size: int, rng: Rng) -> I8:
    """Return independent spins of -1 and 1, (L, L)."""
    return 2 * rng.integers(0, 2, (size, size), np.int8) - 1


def run_sampler(spins: I8, bonds: BondTables, sweeps: int, rng: Rng) -> I64:
    """Update spins (L, L) in place; return their sum after each sweep, (sweeps,)."""
    sums = np.empty(sweeps, np.int64)
    _run_updates(spins, bonds.cumulative, bonds.keep_probability, bonds.alias, rng, sums)
    return sums


@njit_nogil()
def _run_updates(
    spins: I8, cumulative: F64, keep_probability: F64, alias: I64, rng: Rng, sums: I64
) -> None:
    size = len(spins)
    nodes = size * size
    flat = spins.ravel()
    root = np.arange(nodes)
    for sweep in range(len(sums)):
        # 1. Join parallel spins that have a bond. The root of a cluster is its first node.
        for node in range(nodes):
            draw = rng.random()
            bonds = 0
            while draw >= cumulative[bonds]:
                bonds += 1
            for _ in range(bonds):
                position = rng.random() * nodes
                displacement = int(position)
                if position - displacement >= keep_probability[displacement]:
                    displacement = alias[displacement]
                row = (node // size + displacement // size) % size
                column = (node + displacement) % size
                other = row * size + column
                if flat[node] == flat[other]:
                    root_a = _find_root(root, node)
                    root_b = _find_root(root, other)
                    root[max(root_a, root_b)] = min(root_a, root_b)

        # 2. Draw the sign of each cluster at its root, and copy it to the later nodes.
        total = 0
        for node in range(nodes):
            if root[node] == node:
                flat[node] = 1 if rng.random() < 0.5 else -1
            else:
                flat[node] = flat[_find_root(root, node)]
            total += flat[node]
        sums[sweep] = total
        for node in range(nodes):
            root[node] = node


@njit_nogil()
def _find_root(root: I64, node: int) -> int:
    """Return the root of a node, halving the path to it."""
    while root[node] != node:
        root[node] = root[root[node]]
        node = root[node]
    return node
