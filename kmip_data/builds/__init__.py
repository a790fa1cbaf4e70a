"""Builds on disk: home folder, lookup, added columns, verification."""
