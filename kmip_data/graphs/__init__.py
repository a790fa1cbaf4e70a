"""Graph construction: nearest neighbours, splits, statistics."""
