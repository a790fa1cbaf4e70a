"""Building blocks of several dataset families: columns, units, splits, published lists, user files."""
