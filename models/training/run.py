"""Train: one run a seed, resumable, and the mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput
from kmip_data.home import Home
from kmip_data.models.search.registry import check_backend
from kmip_data.models.training.checkpoint import LAST
from kmip_data.models.training.config import RunConfig
from kmip_data.models.training.data import open_data
from kmip_data.models.training.fitting import check, fit
from kmip_data.models.training.folders import CONFIG_NAME, METRICS_NAME, find_run, make_run_folder, run_name
from kmip_data.models.training.handed_over import own_choices
from kmip_data.models.training.logs import teller
from kmip_data.models.training.machine import check_precision, choose_device, is_main_process
from kmip_data.models.training.overrides import apply_overrides, read_config, to_toml
from kmip_data.models.training.presets import differences
from kmip_data.models.training.result import RESULT_NAME, read_result
from kmip_data.models.training.summary import Summary
from kmip_data.shards.writer import write_file
from kmip_data.wording import counted


def train(
    config: RunConfig,
    *,
    home: Home | None = None,
    seeds: Sequence[int] | None = None,
    name: str | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> Summary:
    """Train ``config`` once a seed, building the dataset first where it is missing.

    Parameters
    ----------
    config
        What to train on what; see :func:`kmip_data.models.training.presets.load_preset`.
    home
        Where builds and runs live; the default home if ``None``.
    seeds
        Default: ``config.training.seed`` alone.
    name
        Name of the run folder (with several seeds, its beginning); a time stamp if ``None``.
    build_options
        Handed to :func:`kmip_data.opening.obtain` (``archives``, ``offline``, ``jobs`` …).

    Raises
    ------
    UsageError
        The device, precision, search backend or logger is not there, or a part of the split is empty.
    OutOfResources
        A batch does not fit; the message has its size and the flags to try.
    CheckFailed
        The loss is no longer a finite number.
    KeyboardInterrupt
        Ctrl-C; the last checkpoint is kept and the way to resume was said.
    """
    home = home or Home.locate()
    tell = teller(quiet)
    device = choose_device(config.system.device, config.system.devices)
    check_precision(config.training.precision, device)
    check_backend(config.model.search, device.kind)
    runs, results = [], []
    seeds = tuple(seeds) if seeds else (config.training.seed,)
    for seed in seeds:
        apply_overrides(config, [f"training.seed={seed}"])  # refuses what is no seed before any is trained
    for line in differences(config):
        tell(line)
    for seed in seeds:
        seeded = config.with_seed(seed)
        data = open_data(seeded, home=home, quiet=quiet, **build_options)
        budget, seeded = seeded.model.parameter_budget, data.pinned(seeded)
        if budget is not None and seed == seeds[0]:
            tell(
                f"width: hidden_dim {seeded.model.hidden_dim}, the widest of"
                f" {counted(seeded.model.layers, 'layer')} within model.parameter_budget = {budget:,};"
                " --set model.hidden_dim=N chooses another"
            )
        memory = check(seeded, data, device)
        chosen = name if name is None or len(seeds) == 1 else f"{name}-seed{seed}"
        folder = None
        if is_main_process():
            folder = make_run_folder(
                home,
                data.label,
                seeded.model.name,
                chosen or run_name(seeded.variant, seed),
                exact=chosen is not None,
            )
            write_file(folder / CONFIG_NAME, to_toml(seeded).encode())
        results.append(fit(seeded, data, folder, device, memory, tell=tell, quiet=quiet))
        runs.append(folder or Path())  # another process of a distributed run wrote it
    return Summary(runs, results)


def resume(
    run: str | Path, *, home: Home | None = None, quiet: bool = False, **build_options: Any
) -> Summary:
    """Go on with a run from its last checkpoint; a finished run is returned as it is.

    A finished run whose result cannot be read gets a new one, measured from its checkpoint.

    On a CPU the weights become the same, bit for bit, as those of a run that never stopped
    (with the same number of threads and versions).

    Raises
    ------
    UsageError
        There is no such run.
    DamagedInput
        Its configuration or checkpoint cannot be read.
    CheckFailed
        The dataset is not the one that the run began with.
    """
    home = home or Home.locate()
    tell = teller(quiet)
    folder = find_run(run, home)
    config = read_config(folder / CONFIG_NAME)
    if (folder / RESULT_NAME).is_file():
        try:
            result = read_result(folder)
        except DamagedInput as error:
            tell(f"{error.what} It is written anew.")
        else:
            tell(f"{folder} is finished already.")
            return Summary([folder], [result])
    if (folder / METRICS_NAME).is_file() and not (folder / LAST).is_file():
        raise DamagedInput(
            f"{folder} has finished epochs but no checkpoint to go on from.",
            expected=LAST,
            found="no such file",
            left="the run is as it was",
            next=f"bring {LAST} back, or begin another run: kmip-data train --dataset {config.data.dataset}",
        )
    config = own_choices(config, folder, home, tell)
    device = choose_device(config.system.device, config.system.devices)
    check_precision(config.training.precision, device)
    check_backend(config.model.search, device.kind)
    data = open_data(config, home=home, quiet=quiet, **build_options)
    config = data.pinned(config)
    memory = check(config, data, device)
    return Summary([folder], [fit(config, data, folder, device, memory, tell=tell, quiet=quiet)])
