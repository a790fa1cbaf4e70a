"""Columns of named arrays: inferred from all graphs, and rows fitted to them."""
