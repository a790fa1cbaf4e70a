"""Records and base pipelines of cities, molecules and point clouds."""
