"""Exact k-maximum-inner-product search and its backends."""

from kmip_data.models.search.topk import backend_names, backend_status, topk_inner_product

__all__ = ["backend_names", "backend_status", "topk_inner_product"]
