"""Training steps recorded once and replayed: CUDA graphs."""
