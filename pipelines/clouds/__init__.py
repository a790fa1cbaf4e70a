"""Point clouds: files, blocks of rooms, and how a cloud becomes a graph."""
