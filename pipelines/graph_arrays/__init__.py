"""Arrays of graphs before they become records: read, check, map and sort them."""
