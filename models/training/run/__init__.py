"""A run in its folder: training, checkpoints, records, results and evaluation."""
