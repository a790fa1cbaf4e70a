"""Building blocks of several dataset families: columns, units, splits, user files."""
