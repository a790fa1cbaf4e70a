"""GraphLand's streets: R² of a trained network and of the baseline, gradient-boosted trees.

``python -m benchmarks.roads RUN [HOME]`` evaluates a finished run of ``train
city-roads-m`` on its build and split; ``make bench`` trains briefly on the sample.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.table import Row
from kmip_data.builds.home import Home
from kmip_data.format.split_files import PARTS
from kmip_data.models.training.run.find_runs import find_run
from kmip_data.models.training.run.result import read_result
from kmip_data.pipelines.find_builds import find_build
from kmip_data.reading.dataset import ShardedDataset

TREES: Final = "BASELINE, no network: scikit-learn's HistGradientBoostingRegressor"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Train on the sample, then compare."""
    with tempfile.TemporaryDirectory() as home:
        options = ["city-roads-m", "--sample", "--epochs", 3 if quick else 100]
        options += ["--device", "cpu", "--home", home, "--quiet", "--json"]
        command = [sys.executable, "-m", "kmip_data", "train", *map(str, options)]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
        yield from compare_run(json.loads(process.stdout)["run"], Home(Path(home)))


def compare_run(run: str, home: Home) -> Iterator[Row]:
    """Yield test R² of a run, and of trees on streets without and with the mean of neighbours."""
    result = read_result(find_run(run, home))
    build = find_build(result.dataset, result.build_parameters, home=home, sample=result.sample)
    item = ShardedDataset(build, split_name=result.split.name)[0]
    x, y = item.x.numpy(), item.y.numpy()
    masks = {part: item[f"{part}_mask"].numpy() for part in PARTS}
    source, target = item.edge_index.numpy()
    neighbours = np.stack([np.bincount(target, column[source], len(x)) for column in x.T], axis=1)
    neighbours /= np.maximum(np.bincount(target, minlength=len(x)), 1)[:, None]
    inputs = {
        "a street": x,
        "a street and the mean of its neighbours": np.hstack([x, neighbours]),
    }
    for what, features in inputs.items():
        yield Row(
            what=f"{build.card.dataset_label}, {result.model}, {result.epochs} epochs: R² on test",
            against=f"{TREES}, on {what}",
            ours=result.metrics["test"]["r2"],
            theirs=r_squared(features, y, masks),
            unit="R²",
            note=f"roads: split {result.split.name}; trees stop early by the loss on val, untuned",
        )


def r_squared(x: Any, y: Any, masks: dict[str, Any]) -> float:
    """Return test R² of up to 1,000 trees fitted on train, stopped early by val."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.metrics import r2_score

    train, val, test = (masks[part] for part in PARTS)
    trees = HistGradientBoostingRegressor(
        max_iter=1_000, learning_rate=0.05, early_stopping=True, random_state=0
    )
    trees.fit(x[train], y[train], X_val=x[val], y_val=y[val])
    return float(r2_score(y[test], trees.predict(x[test])))


if __name__ == "__main__":
    home = Home.locate(sys.argv[2] if len(sys.argv) > 2 else None)
    print(*(row.markdown("roads") for row in compare_run(sys.argv[1], home)), sep="\n")
