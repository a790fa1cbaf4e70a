"""Raw bytes to shards: fetch, unpack, one pipeline per dataset family, the build engine."""
