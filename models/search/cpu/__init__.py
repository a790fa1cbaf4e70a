"""Compiled search for the CPU: bounds, scans, and the proof that nothing was missed."""
