"""What a shard and a card are, and how they are written and read: the format of a build on disk."""
