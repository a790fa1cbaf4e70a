"""What dataset families share: columns of a schema, units, splits, published lists, a user's own files."""
