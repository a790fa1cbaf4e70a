"""Benchmarks: each topic measures rows of docs/performance.md on generated data."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
