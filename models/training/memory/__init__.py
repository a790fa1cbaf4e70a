"""How much memory a run needs, and what the machine has."""
