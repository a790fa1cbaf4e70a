"""Graphs in text files: DOT, GML, Pajek and JSON."""
