"""Atom and bond features of the Open Graph Benchmark (``ogb.utils.features``, ogb 1.3.6).

Each feature is an index into a list of categories. Pipelines store them, encoders embed them.
"""

from __future__ import annotations

ATOM_FIELDS = (
    "atomic number - 1", "chirality", "degree with hydrogens", "formal charge + 5", "hydrogens",
    "radical electrons", "hybridisation", "aromatic", "in a ring",
)  # fmt: skip
#: Names and values that a chemist expects: the name, and the difference from the stored value.
SHIFTED_FIELDS = {
    "atomic number - 1": ("atomic number", 1),
    "formal charge + 5": ("formal charge", -5),
}
#: Number of categories of each field. In seven fields the last one stands for unlisted values.
ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_FIELDS = ("type", "stereo", "conjugated")
BOND_SIZES = (5, 6, 2)
