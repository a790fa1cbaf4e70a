"""Records of cities, molecules and point clouds, and the base classes of their pipelines."""
