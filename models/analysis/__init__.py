"""Analyses of trained attention, compared with full attention, and answers of a run for the explorer."""
