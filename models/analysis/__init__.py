"""What trained attention does: its projections, and how k-MIP attention compares with full attention."""
