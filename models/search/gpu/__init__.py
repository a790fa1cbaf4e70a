"""Triton kernels of the search and what drives them; imported only when a search uses them."""
