"""Builds and runs given to others and taken from them: what a push is, and the ways there and back."""
