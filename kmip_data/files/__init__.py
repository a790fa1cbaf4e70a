"""Read files within limits; write, replace, remove and lock them safely."""
