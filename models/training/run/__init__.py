"""Runs: training, checkpoints, results, evaluation and predictions."""
