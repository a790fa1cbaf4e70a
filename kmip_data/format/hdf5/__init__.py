"""HDF5 files, written reproducibly and opened safely even if a stranger made them."""
