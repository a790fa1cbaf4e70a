"""Message-passing layers, norms, and the batch that they read."""
