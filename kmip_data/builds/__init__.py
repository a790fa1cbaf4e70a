"""A build as a thing: where it lies, which one is meant, the columns added to it, and whether it is whole."""
