"""How a network reads positional encodings, one a module: see :mod:`kmip_data.models.kinds`."""
