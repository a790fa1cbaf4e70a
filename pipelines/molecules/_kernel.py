"""Compiled reader of RDKit's binary molecules, for :mod:`kmip_data.pipelines.molecules.features`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kmip_data.runtime.compiled import njit_nogil

BEGIN_ATOM, BEGIN_BOND = 0x01, 0x0B  #: tags before the parts
RINGS = (0x14, 0x42, 0x43)  #: tags before the rings, by how they were found
FIRST_PART = 29  #: bytes of the header
AROMATIC, CONJUGATED = 0x40, 0x20  #: flags of atoms (aromatic) and bonds (both)


@njit_nogil()
def read_molecule(  # noqa: C901, PLR0911, PLR0912, PLR0915 -- one pass over the bytes
    data: NDArray[np.uint8],
    hybridisations: NDArray[np.uint8],
    stereos: NDArray[np.uint8],
    x: NDArray[np.uint8],
    edge_index: NDArray[np.int32],
    edge_attr: NDArray[np.uint8],
) -> bool:
    """Fill the features of one molecule; false where something is in ``data`` that this does not know.

    An atom is its element, flags, a mask, and one byte for each bit of the mask that is set: charge,
    chiral tag, hybridisation (SP3 unless given), explicit hydrogens, explicit valence, implicit
    hydrogens, radical electrons; bit 8 is an isotope of four bytes. A bond is its two ends, flags, and
    a byte each for a type that is not single, a direction, a stereo mark (with its atoms). Rings
    follow as lists of atoms. Numbers of atoms take one byte up to 255 atoms and bonds, else four.
    """
    atoms, bonds, size = len(x), len(edge_attr) // 2, len(data)
    wide = 1 if atoms <= 255 and bonds <= 255 else 4
    at = FIRST_PART
    if at >= size or data[at] != BEGIN_ATOM:
        return False
    at += 1
    hydrogens = np.zeros(atoms, np.int32)
    degree = np.zeros(atoms, np.int32)
    for i in range(atoms):
        if at + 6 > size:
            return False
        element, flags = data[at], data[at + 1]
        mask = np.int64(data[at + 2]) | np.int64(data[at + 3]) << 8
        if flags & 0x9F or mask >> 9 or data[at + 4] or data[at + 5]:
            return False
        at += 6
        charge = chiral = radicals = 0
        hybridisation = 4
        for bit in range(9):
            if not mask >> bit & 1:
                continue
            if bit == 0 or at >= size:
                return False
            value = int(data[at])
            at += 4 if bit == 8 else 1
            if bit == 1:
                charge = value - 256 if value > 127 else value
            elif bit == 2:
                chiral = value
            elif bit == 3:
                hybridisation = value
            elif bit in {4, 6}:
                hydrogens[i] += value
            elif bit == 7:
                radicals = value
        if hybridisation >= len(hybridisations):
            return False
        x[i, 0] = element - 1 if 1 <= element <= 118 else 118
        x[i, 1] = min(chiral, 4)
        x[i, 3] = charge + 5 if -5 <= charge <= 5 else 11
        x[i, 4] = min(hydrogens[i], 9)
        x[i, 5] = min(radicals, 5)
        x[i, 6] = hybridisations[hybridisation]
        x[i, 7] = flags & AROMATIC != 0
        x[i, 8] = 0
    if at >= size or data[at] != BEGIN_BOND:
        return False
    at += 1
    for i in range(bonds):
        if at + 2 * wide + 1 > size:
            return False
        begin, end = _number(data, at, wide), _number(data, at + wide, wide)
        at += 2 * wide
        flags = data[at]
        at += 1
        if not (0 <= begin < atoms and 0 <= end < atoms) or flags & 0x91:
            return False
        kind = stereo = 0
        if flags & 0x08:
            if at >= size:
                return False
            value = data[at]
            at += 1
            kind = value - 1 if 1 <= value <= 3 else (3 if value == 12 else 4)
        if flags & 0x04:
            at += 1
        if flags & 0x02:
            if at + 2 > size:
                return False
            if data[at] >= len(stereos):
                return False
            stereo = stereos[data[at]]
            at += 2 + data[at + 1] * wide
        degree[begin] += 1
        degree[end] += 1
        edge_index[0, 2 * i], edge_index[1, 2 * i] = begin, end
        edge_index[0, 2 * i + 1], edge_index[1, 2 * i + 1] = end, begin
        for j in (2 * i, 2 * i + 1):
            edge_attr[j, 0], edge_attr[j, 1] = kind, stereo
            edge_attr[j, 2] = flags & CONJUGATED != 0
    for i in range(atoms):
        x[i, 2] = min(degree[i] + hydrogens[i], 11)
    if at + 5 > size or data[at] not in RINGS:
        return False
    rings = _number(data, at + 1, 4)
    at += 5
    for _ in range(rings):
        if at + wide > size:
            return False
        length = _number(data, at, wide)
        at += wide
        if length < 0 or at + length * wide > size:
            return False
        for _ in range(length):
            atom = _number(data, at, wide)
            if not 0 <= atom < atoms:
                return False
            x[atom, 8] = 1
            at += wide
    return True


@njit_nogil()
def _number(data: NDArray[np.uint8], at: int, wide: int) -> int:
    """Read a little-endian number of ``wide`` bytes."""
    if wide == 1:
        return int(data[at])
    low = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return int(low | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24)
