"""Attention of the layers, a kind in each file: its keys, and how its module is built."""
