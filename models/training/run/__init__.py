"""A run in its folder: fitting, checkpoints, records, results, and measuring it again."""
