"""k-MIP search and attention, GPS networks and their trainer."""
