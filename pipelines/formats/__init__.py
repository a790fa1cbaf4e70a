"""Readers of raw file formats: text, tables, pickles, tensor files, PLY and HDF5, none of them trusted.

The argument ``name`` of a reader is what messages call the file.
"""
