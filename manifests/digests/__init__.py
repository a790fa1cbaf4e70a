"""Digests of shards and splits, by build key; `kmip-data verify --published` compares."""
