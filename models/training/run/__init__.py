"""Runs: training, checkpoints, records, results and evaluation."""
