"""From finished shards to a finished build, and what may be done to it later: repair, added columns."""
