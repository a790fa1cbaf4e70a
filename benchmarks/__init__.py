"""Benchmarks: each topic measures rows of docs/performance.md, on the generated data of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
