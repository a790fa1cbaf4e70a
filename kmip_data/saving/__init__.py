"""Save datasets as builds, compare them, and export them."""
