"""The raw data of a dataset: found, fetched or generated, verified, and kept in the home folder."""
