"""Kinds of attention, one a module: :mod:`kmip_data.models.parts` says what it holds."""
