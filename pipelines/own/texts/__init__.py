"""Delimited texts as tables."""
