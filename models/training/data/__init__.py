"""What a run reads: its build, its parts, and batches of them."""
