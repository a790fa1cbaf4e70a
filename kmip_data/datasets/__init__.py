"""Public dataset classes by family, and their transforms."""
