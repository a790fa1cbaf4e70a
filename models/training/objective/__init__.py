"""Objective of a run: tasks, losses and metrics."""
