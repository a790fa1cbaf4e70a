"""Tables of edges, nodes and graphs as people write them: CSV and other text, and frames of pandas."""
