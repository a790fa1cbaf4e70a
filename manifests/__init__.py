"""Data, not code: what the datasets are and the paper's hyper-parameters."""
