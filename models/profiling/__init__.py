"""The paper's efficiency experiment on this machine: methods of attention against the number of nodes."""
