"""Columns inferred from your own graphs, and conversion of rows to their stored dtypes."""
