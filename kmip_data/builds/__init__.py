"""Builds on disk: home folder, lookup, added columns and verification."""
