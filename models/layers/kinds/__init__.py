"""Kinds of message passing, one a module: :mod:`kmip_data.models.kinds` says what it holds."""
