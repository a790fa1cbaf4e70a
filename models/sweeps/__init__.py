"""Plans of many runs: datasets by models by changes by seeds; each run can be gone on with."""
