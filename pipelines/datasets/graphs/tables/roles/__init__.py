"""Roles of tables and of their columns of ids, from the values that they share."""
