"""One folder per dataset family: its pipeline (``PIPELINE``), and ``sample``, a miniature of its raw files."""
