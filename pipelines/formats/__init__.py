"""Readers of untrusted raw file formats. Parameter ``name`` is the file name in messages."""
