"""Save PyTorch Geometric datasets as builds, and export builds."""

from typing import Literal

ExportFormat = Literal["parquet", "pt"]
