"""Kinds of message passing, one a module: :mod:`kmip_data.models.parts` says what it holds."""
