"""Build engine: runs of units in processes or on a cluster, added columns, and the end of a build."""
