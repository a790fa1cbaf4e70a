"""Pictures and pages of graphs, and maps of cities."""
