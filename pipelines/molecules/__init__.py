"""Molecules from SMILES: features by RDKit, and what the pipelines of molecules share."""
