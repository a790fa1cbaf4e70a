"""Kinds of attention, one per file: configuration keys and construction of the module."""
