"""On-disk format of a build: readers and writers of shards, splits and card."""
