"""Triton kernels of the ``triton`` backend and what drives them; imported only when a search uses them."""
