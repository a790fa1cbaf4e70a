"""Reports of finished runs: tables and plots, next to the paper's results."""
