"""One module per search backend; see :mod:`kmip_data.models.search.topk` for what it holds."""
