"""Configuration, losses, metrics, schedules and the training loop."""
