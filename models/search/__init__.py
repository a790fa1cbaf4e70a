"""Exact k-maximum-inner-product search and its backends."""
