"""Analyses of trained attention and of a run's predictions."""
