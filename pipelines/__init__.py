"""Raw bytes to shards: fetch, unpack, one pipeline a dataset family, the build engine."""
