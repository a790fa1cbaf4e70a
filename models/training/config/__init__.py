"""Configuration of a run: keys, presets and overrides."""
