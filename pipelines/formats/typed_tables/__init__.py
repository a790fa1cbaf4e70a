"""Tables whose columns have names and types: Parquet, Arrow, JSON, workbooks, and frames in Python."""
