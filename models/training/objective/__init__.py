"""What a run minimises and measures: tasks, losses and metrics."""
