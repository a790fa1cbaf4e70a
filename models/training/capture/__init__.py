"""Capture training steps as CUDA graphs, and replay them."""
