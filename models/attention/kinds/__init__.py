"""Kinds of attention, one a module: :mod:`kmip_data.models.kinds` says what it holds."""
