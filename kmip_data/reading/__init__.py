"""A build as a PyTorch Geometric dataset: single graphs and batches."""
