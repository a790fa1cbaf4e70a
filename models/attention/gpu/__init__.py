"""Triton kernels of attention over chosen pairs and what drives them.

Imported only where they run.
"""
