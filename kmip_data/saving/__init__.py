"""Save any PyTorch Geometric dataset as a build."""

from typing import Literal

ExportFormat = Literal["parquet", "pt"]
