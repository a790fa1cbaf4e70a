"""Kinds of attention, one per module: :mod:`kmip_data.models.kinds` says what it holds."""
