"""Compiled kernels of message passing, for the CPU."""
