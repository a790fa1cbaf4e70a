"""Sweeps: datasets × models × changes × seeds, each run a process that can be resumed."""
