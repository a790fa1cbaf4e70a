"""Reports: tables of results, with the paper's."""
