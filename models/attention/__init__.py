"""Global attention layers."""
