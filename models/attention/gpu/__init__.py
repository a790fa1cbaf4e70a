"""Triton kernels of attention over chosen pairs, imported only where they run."""
