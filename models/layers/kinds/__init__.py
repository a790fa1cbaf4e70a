"""Kinds of message passing, one per module: :mod:`kmip_data.models.kinds` says what it holds."""
