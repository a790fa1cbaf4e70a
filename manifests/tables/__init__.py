"""Tables that code reads: examples in help, shapes of a sample, rules of streets."""
