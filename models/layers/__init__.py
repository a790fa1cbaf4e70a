"""Message-passing layers, norms, and the batches they read."""
