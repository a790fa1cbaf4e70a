"""Commands of ``kmip-data analyze``, one module each."""
