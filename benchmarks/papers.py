"""Time and memory of generated ogbn-papers100m graphs from zip to training, by size.

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
from kmip_data.models.benchmarking.result_text import describe_machine

NAME: Final = "ogbn-papers100m"
SAMPLING_OPTIONS: Final = (
    *("--set", "training.neighbors=[12, 12, 12]", "--set", "training.eval_neighbors=[12, 12, 12]"),
    *("--set", "training.batch_size=256", "--set", "model.hidden_dim=64"),
    *("--set", "model.parameter_budget=none"),
)
#: Stage -> measured command.
COMMANDS: Final = {
    "build": ("build", NAME, "--memory", "4GB", "--quiet"),
    "verify": ("verify", NAME),
    "training batch": ("bench", "train", NAME, "--model", "sage", "--device", "cpu", "--json"),
}


def measure_graph(nodes: int) -> Country:
    """Generate an archive, build it, verify it and train on it, in separate processes."""
    costs = {}
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as name:
        folder = Path(name)
        archive = folder / "papers100M-bin.zip"
        run_module("support.builds.papers", (str(archive), str(nodes), "--stored"))
        home = ("--home", str(folder / "home"))
        options = {"build": ("--archive", str(archive)), "training batch": SAMPLING_OPTIONS}
        for stage, arguments in COMMANDS.items():
            command = (*arguments, *options.get(stage, ()), *home)
            cost, printed = run_module("kmip_data", command, mapped=False)
            if stage == "training batch" and not cost.reason:
                (pace,) = json.loads(printed)["models"]
                cost = Cost(pace["seconds"] or 0, cost.memory, pace["note"])
            costs[stage] = cost
            archive.unlink(missing_ok=True)
    return Country(nodes, costs)


if __name__ == "__main__":
    graphs = list[Country]()
    for size in sys.argv[1:]:
        graphs.append(measure_graph(round(float(size))))
        # Report after each size, because a later one may run out of memory.
        print("\n".join(table(graphs, tuple(COMMANDS), PUBLISHED)), flush=True)
    print(f"Machine: {describe_machine()}.")
