"""From any PyTorch Geometric dataset to a build."""
