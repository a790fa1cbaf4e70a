"""The build engine: units through workers into shards, journaled and resumable, the card last."""
