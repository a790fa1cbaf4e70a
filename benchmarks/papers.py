"""Generated ogbn-papers100m from zip to training: time and memory of its own, and how they grow.

``python -m benchmarks.papers 1.1e6 1.1e7 2.8e7`` prints the table of
docs/site/papers.txt, from which ``make docs`` draws the picture; 2.8e7 nodes need 55 GB of disk.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from support.builds.papers import PUBLISHED

from benchmarks.country import Cost, Country, run_module, table
from kmip_data.models.profiling.number_format import machine_line

NAME: Final = "ogbn-papers100m"
SAMPLED: Final = (
    *("--set", "training.neighbors=[12, 12, 12]", "--set", "training.eval_neighbors=[12, 12, 12]"),
    *("--set", "training.batch_size=256", "--set", "model.hidden_dim=64"),
    *("--set", "model.parameter_budget=none"),
)
#: Stages of the table, and the commands that are measured.
COMMANDS: Final = {
    "build": ("build", NAME, "--memory", "4GB", "--quiet"),
    "verify": ("verify", NAME),
    "training batch": ("bench", "train", NAME, "--model", "sage", "--device", "cpu", "--json"),
}


def measured(nodes: int) -> Country:
    """Generate an archive, build and check it, and train on it, each in a process of its own."""
    costs = {}
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        archive = folder / "papers100M-bin.zip"
        run_module("support.builds.papers", (str(archive), str(nodes), "--stored"))
        home = ("--home", str(folder / "home"))
        more = {"build": ("--archive", str(archive)), "training batch": SAMPLED}
        for stage, words in COMMANDS.items():
            command = (*words, *more.get(stage, ()), *home)
            cost, printed = run_module("kmip_data", command, mapped=False)
            if stage == "training batch" and not cost.reason:
                (pace,) = json.loads(printed)["models"]
                cost = Cost(pace["seconds"] or 0, cost.memory, pace["note"])
            costs[stage] = cost
            archive.unlink(missing_ok=True)
    return Country(nodes, costs)


if __name__ == "__main__":
    done = list[Country]()
    for size in sys.argv[1:]:
        done.append(measured(round(float(size))))
        # What is done, if a later size takes all down.
        print("\n".join(table(done, tuple(COMMANDS), PUBLISHED)), flush=True)
    print(f"Machine: {machine_line()}.")
