"""Options, output, help and lazy loading, shared by the commands."""
