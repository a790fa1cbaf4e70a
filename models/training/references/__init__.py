"""Reference answers: simple methods that a trained network should exceed, fitted on the same parts."""
