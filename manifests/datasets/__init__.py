"""One TOML file a dataset."""
