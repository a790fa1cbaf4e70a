"""Push builds and runs to an address, pull them from it, and read remote builds."""
