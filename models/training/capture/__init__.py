"""CUDA graphs of training steps: captured once and replayed."""
