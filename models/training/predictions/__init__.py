"""What a run predicts of each record of a part, as a file, and the metrics of any such file."""
