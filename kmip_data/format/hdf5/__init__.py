"""HDF5 files that someone else may have made: written reproducibly, opened safely, read by mapping."""
