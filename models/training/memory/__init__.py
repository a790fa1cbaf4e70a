"""How much memory a run needs, what the machine has, and giving it back."""
