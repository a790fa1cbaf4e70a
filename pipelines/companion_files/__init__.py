"""Files next to clouds or pictures: legends, tables with a row for each item, and lists of parts."""
