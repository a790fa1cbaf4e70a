"""A build as a PyTorch Geometric dataset: its graphs one by one, in batches, and for Lightning."""
