"""The build engine: units through workers into shards, resumable by their results, the card last."""
