"""Triton kernels of attention to chosen keys, imported only if they run."""
