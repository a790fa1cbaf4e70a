"""How a network reads positional encodings, one per module: see :mod:`kmip_data.models.kinds`."""
