"""One folder per dataset family: ``PIPELINE``, and ``sample``, which generates small raw files."""
