"""Encodings that can be added to a build, one per module, discovered by the name ``ENCODING``."""
