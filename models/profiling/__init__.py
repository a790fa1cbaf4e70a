"""The paper's efficiency experiment: time and memory of attention methods over the number of nodes."""
