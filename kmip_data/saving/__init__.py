"""Save any PyTorch Geometric dataset as a build."""
