"""One module per search backend; see :mod:`kmip_data.models.search.registry` for what it holds."""
