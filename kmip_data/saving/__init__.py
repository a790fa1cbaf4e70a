"""Save datasets as builds, and export builds to other formats."""

from typing import Literal

ExportFormat = Literal["parquet", "pt"]
