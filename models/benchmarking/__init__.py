"""Time and memory of attention methods over the number of nodes, and time of training steps."""
