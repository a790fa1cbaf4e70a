"""Generators of miniature raw archives in the exact upstream layout."""
