"""Triton kernels of attention over chosen pairs and what drives them; imported only where they run."""
