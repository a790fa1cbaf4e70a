"""Kinds of attention, one per module; discovered by its ``COMPONENT``."""
