"""Readers of untrusted raw file formats; ``name`` is the file's name in messages."""
