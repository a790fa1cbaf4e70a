"""Format of a build on disk: shards, splits and card, written and read."""
