"""What the families do alike: columns of a schema, units, published lists, files of one's own."""
