"""One TOML file a preset of the paper."""
