"""Benchmarks: each topic measures rows of docs/performance.md on generated data."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in `kmip-data`: idle threads sleep
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
