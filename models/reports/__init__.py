"""Reports: results of runs as tables with the paper's figures."""
