"""Streets of GraphLand: R² of gradient-boosted trees, the baseline to beat, next to a trained network's.

``python -m benchmarks.roads RUN [HOME]`` compares a finished run of ``train
--dataset city-roads-m``, on its build and its split; as a topic of ``make bench``, a short run on
the sample.
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
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import find_run
from kmip_data.pipelines.find import find
from kmip_data.reading.dataset import ShardedDataset

TREES: Final = "BASELINE, no network: scikit-learn's HistGradientBoostingRegressor"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Train on the sample, then compare."""
    with tempfile.TemporaryDirectory() as home:
        words = ["train", "--dataset", "city-roads-m", "--sample", "--epochs", 3 if quick else 100]
        words += ["--device", "cpu", "--home", home, "--quiet", "--json"]
        command = [sys.executable, "-m", "kmip_data", *map(str, words)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield from compared(json.loads(done.stdout)["run"], Home(Path(home)))


def compared(run: str, home: Home) -> Iterator[Row]:
    """Yield R² on test: of a run, and of trees on a street alone and with the mean of its neighbours."""
    result = read_result(find_run(run, home))
    build = find(result.dataset, result.build_parameters, home=home, sample=result.sample)
    item = ShardedDataset(build, split_name=result.split.name)[0]
    x, y = item.x.numpy(), item.y.numpy()
    masks = {part: item[f"{part}_mask"].numpy() for part in PARTS}
    source, target = item.edge_index.numpy()
    near = np.stack([np.bincount(target, column[source], len(x)) for column in x.T], axis=1)
    near /= np.maximum(np.bincount(target, minlength=len(x)), 1)[:, None]
    inputs = {"a street alone": x, "a street and the mean of its neighbours": np.hstack([x, near])}
    for what, features in inputs.items():
        yield Row(
            what=f"{build.card.dataset_label}, {result.model}, {result.epochs} epochs: R² on test",
            against=f"{TREES}, on {what}",
            ours=result.metrics["test"]["r2"],
            theirs=r_squared(features, y, masks),
            unit="R²",
            note=f"roads: split {result.split.name}; trees stop by the loss on val, nothing tuned",
        )


def r_squared(x: Any, y: Any, masks: dict[str, Any]) -> float:
    """R² on test of trees fitted on train; their number is the best on val, of up to 1,000."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.metrics import r2_score

    train, val, test = (masks[part] for part in PARTS)
    trees = HistGradientBoostingRegressor(
        max_iter=1_000, learning_rate=0.05, early_stopping=True, random_state=0
    )
    trees.fit(x[train], y[train], X_val=x[val], y_val=y[val])
    return float(r2_score(y[test], trees.predict(x[test])))


if __name__ == "__main__":
    where = Home.locate(sys.argv[2] if len(sys.argv) > 2 else None)
    print(*(row.markdown("roads") for row in compared(sys.argv[1], where)), sep="\n")
