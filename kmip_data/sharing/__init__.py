"""Push builds and runs to an address, and pull them from it."""
