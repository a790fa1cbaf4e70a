"""Sweeps over datasets × models × changes × seeds, each run in a process that can be resumed."""
