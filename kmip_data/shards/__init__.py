"""The shard file format: writing, mapped reading, verification."""
