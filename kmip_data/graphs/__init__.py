"""Graph construction: neighbours, eccentricity, encodings, splits and statistics."""
