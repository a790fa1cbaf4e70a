"""Columns of own tables: facts of their values, uses by rules, and what is stored."""
