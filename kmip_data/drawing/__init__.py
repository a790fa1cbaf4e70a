"""Plots and pages of graphs, and maps of cities."""
