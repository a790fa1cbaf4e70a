"""Triton kernels of message passing; imported only when a layer uses them."""
