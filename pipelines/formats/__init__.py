"""Readers of raw file formats, none of them trusted; ``name`` is what messages call the file."""
