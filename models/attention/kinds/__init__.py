"""Kinds of attention, one module each, discovered by ``COMPONENT``."""
