"""What runs found, as tables beside the paper's: which may stand in one row, and how sure differences are."""
