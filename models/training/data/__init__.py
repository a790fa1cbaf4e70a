"""Data of a run: build, parts and batches."""
