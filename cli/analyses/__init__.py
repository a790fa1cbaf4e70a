"""The analyses of ``kmip-data analyze``, one module each, and what they share."""
