"""From raw bytes to shards: fetch, unpack, one pipeline per dataset family, and the build engine."""
