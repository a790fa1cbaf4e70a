"""Tables that code reads: shapes of a sample, rules of streets, names in GraphGPS's configurations."""
