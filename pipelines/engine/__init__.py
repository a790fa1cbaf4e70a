"""Build engine: workers turn units into shards; builds resume from finished units and end with the card."""
