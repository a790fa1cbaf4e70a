"""Data of a run: its build, its parts, and batches of them."""
