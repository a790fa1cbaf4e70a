"""The street network: choice of ways, construction, simplification and speeds."""
