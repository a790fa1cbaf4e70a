"""Predictions for the records of a part, as a file, and the metrics of such files."""
