"""Build engine: build units in processes or on a cluster, finish and repair builds, add columns."""
