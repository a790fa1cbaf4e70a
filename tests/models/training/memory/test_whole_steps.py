"""The estimate of every model against whole training steps, as the allocator counts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.allocations import count_numpy_too, peak_of
from support.training_data import learnable_build

from kmip_data.builds.home import Home
from kmip_data.models.registry import models
from kmip_data.models.training.config.optimisers import build_optimiser
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory import estimate as memory
from kmip_data.models.training.memory.counting import count_kept
from kmip_data.models.training.run.module import TrainingModule

PAIRS = {"attention": {"dropout": 0.5}}  #: weights of all pairs are kept
CASES = [("neighbor", name, {}) for name in sorted(models())]
CASES += [("index", name, {}) for name in ("exphormer", "gat", "gated-gcn", "gine", "gps-performer")]
CASES += [("neighbor", "gps-transformer", PAIRS)]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "name", "more"), CASES)
def test_the_estimate_is_within_a_quarter(tmp_path: Path, monkeypatch, layout: str, name: str, more) -> None:
    """But for holes in the heap of a process, and copies of weights that were there before."""
    build = learnable_build(tmp_path / "build", layout=layout, nodes=250, graphs=8, k=5)
    values = {
        "data": {"dataset": str(build.path)},
        "model": {"name": name, "layers": 5, "hidden_dim": 32, **more},
        "training": {"batch_size": 4},
    }
    data = open_data(config_from_mapping(values, "the test"), home=Home(tmp_path))
    batch, kept = next(iter(data.batches(lambda: 0))), count_kept(data.config, data, data.largest_batch)
    found = {}
    for recompute in (False, True):
        module = TrainingModule(data.config, data, recompute=recompute).train()
        optimiser = build_optimiser(module, data.config.optimiser)

        def step(module=module, optimiser=optimiser) -> None:
            module.learn(batch)[3].backward()
            optimiser.step()
            optimiser.zero_grad()

        step()  # compiles, and makes the moments of the optimiser
        with monkeypatch.context() as patched:
            count_numpy_too(patched)
            measured = peak_of(step)
        said = memory.estimate(kept, recompute=recompute, copies=1).new - recompute * kept.holes
        found[recompute] = said / measured
    assert found == pytest.approx({False: 1, True: 1}, abs=0.25)
