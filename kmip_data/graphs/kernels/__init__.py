"""Compiled kernels of the graph algorithms."""
