"""Safe file access: size-limited reads, atomic writes, removal and locks."""
