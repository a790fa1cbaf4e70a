"""Search backends, one per module; :mod:`kmip_data.models.search.topk` documents their interface."""
