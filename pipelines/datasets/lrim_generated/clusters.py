"""Swendsen-Wang sampler of the long-range Ising model, in time proportional to the nodes.

Parallel spins are joined with probability 1 - exp(-2 J / T), as if a Poisson process of rate 2 J / T
had an event. Each node draws its number of events, with mean sum J / T, and from an alias table of
J the other node of each; a pair is drawn from both ends, which gives the rate (Luijten and Blöte,
1995; Fukui and Todo, 2009). Then every cluster takes either sign.
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
class Bonds:
    """Tables from which nodes draw bonds at a temperature; equal on every processor."""

    counts: F64  #: cumulative distribution of the number of bonds that a node draws
    keep: F64  #: (L²,) probability that a displacement drawn uniformly is kept
    alias: I64  #: (L²,) displacement that replaces it otherwise

    @classmethod
    def at_temperature(cls, table: F64, temperature: float) -> Bonds:
        """Return the tables for couplings (L, L)."""
        total = math.fsum(table.ravel())
        return cls(poisson_table(total / temperature), *alias_table(table.ravel()))


def poisson_table(mean: float) -> F64:
    """Return the cumulative Poisson distribution; the last value is 1."""
    chance = float((-Decimal(mean)).exp())
    sums = [chance]
    while chance > 1e-20:
        chance *= mean / len(sums)
        sums.append(sums[-1] + chance)
    sums[-1] = 1.0
    return np.array(sums)


def alias_table(weights: F64) -> tuple[F64, I64]:
    """Return Walker's tables of weights (N,): the probability to keep each, and its replacement."""
    keep = weights * (len(weights) / math.fsum(weights))
    alias = np.arange(len(weights))
    small = np.flatnonzero(keep < 1).tolist()
    large = np.flatnonzero(keep >= 1).tolist()
    while small and large:
        poor = small.pop()
        rich = large[-1]
        alias[poor] = rich
        keep[rich] -= 1 - keep[poor]
        if keep[rich] < 1:
            small.append(large.pop())
    keep[small + large] = 1  # 1 up to rounding
    return keep, alias


def random_spins(size: int, rng: Rng) -> I8:
    """Return independent spins of -1 and 1, (L, L)."""
    return 2 * rng.integers(0, 2, (size, size), np.int8) - 1


def run_sampler(spins: I8, bonds: Bonds, sweeps: int, rng: Rng) -> I64:
    """Move spins (L, L) along their chain, in place; return their sum after each sweep, (sweeps,)."""
    sums = np.empty(sweeps, np.int64)
    _run_updates(spins, bonds.counts, bonds.keep, bonds.alias, rng, sums)
    return sums


@njit_nogil()
def _run_updates(spins: I8, counts: F64, keep: F64, alias: I64, rng: Rng, sums: I64) -> None:
    size = len(spins)
    nodes = size * size
    flat = spins.ravel()
    root = np.arange(nodes)
    for sweep in range(len(sums)):
        # 1. Join parallel spins that have a bond. The root of a cluster is its first node.
        for node in range(nodes):
            chance = rng.random()
            bonds = 0
            while chance >= counts[bonds]:
                bonds += 1
            for _ in range(bonds):
                place = rng.random() * nodes
                step = int(place)
                if place - step >= keep[step]:
                    step = alias[step]
                row = (node // size + step // size) % size
                column = (node + step) % size
                other = row * size + column
                if flat[node] == flat[other]:
                    one = _find_root(root, node)
                    two = _find_root(root, other)
                    root[max(one, two)] = min(one, two)

        # 2. Each cluster takes either sign: its root draws, and the others, which follow, copy.
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
    """Return the root of a node, and halve the path to it."""
    while root[node] != node:
        root[node] = root[root[node]]
        node = root[node]
    return node
