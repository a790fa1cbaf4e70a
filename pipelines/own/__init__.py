"""Own tables: files become tables, values decide roles, and a description becomes records."""
