"""The configuration of a run: its keys, presets and overrides, and the schedules it names."""
