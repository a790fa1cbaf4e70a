"""Train: one run per seed, resumable, and the mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import refuse_links
from kmip_data.files.locking import build_lock
from kmip_data.format.writer import write_file
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, read_config, to_toml
from kmip_data.models.training.config.presets import differences
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory.estimate import plan_memory
from kmip_data.models.training.memory.machine import (
    Device,
    check_compile,
    check_precision,
    choose_device,
    is_main_process,
)
from kmip_data.models.training.run.checkpoint import INITIAL, write_weights
from kmip_data.models.training.run.fine_tuning import fitting_weights, with_source
from kmip_data.models.training.run.fitting import Job, fit
from kmip_data.models.training.run.folders import (
    CONFIG_NAME,
    RESULT_NAME,
    check_name,
    find_run,
    new_run,
    own_choices,
    run_name,
)
from kmip_data.models.training.run.logs import check_logger, teller
from kmip_data.models.training.run.result import RunResult, Summary, read_result
from kmip_data.models.training.run.side_by_side import run_side_by_side
from kmip_data.wording import counted

#: Keys that a resumed run may change: what a run whose numbers went astray needs.
CHANGEABLE = ("optimiser.lr", "training.clip_norm")


def train(
    config: RunConfig,
    *,
    home: Home | None = None,
    seeds: Sequence[int] | None = None,
    name: str | None = None,
    quiet: bool = False,
    explain: bool = False,
    profile: bool = False,
    at_once: int = 1,
    **build_options: Any,
) -> Summary:
    """Train ``config`` once per seed, building the dataset first where it is missing.

    Parameters
    ----------
    config
        What to train on what; see :func:`kmip_data.models.training.config.presets.load_preset`.
    home
        Where builds and runs live; the default home if ``None``.
    seeds
        Default: ``config.training.seed`` alone.
    name
        Name of the run folder (with several seeds, its beginning); a time stamp if ``None``.
    explain
        List where the text and the code of the preset differ, key by key.
    profile
        Trace some of the first run's steps; see :class:`~kmip_data.models.training.run.profile.Profile`.
    at_once
        Seeds that are trained at a time, each on ``system.devices`` GPUs of its own or its share of the
        cores. The results are the same; on a CPU up to rounding, which depends on the number of threads.
    build_options
        Handed to :func:`kmip_data.builds.find.obtain` (``archives``, ``offline``, ``jobs`` …).

    Raises
    ------
    UsageError
        The device, precision, search backend or logger is not there, the name is not a plain file name or is
        taken, or a part of the split is empty.
    OutOfResources
        A batch does not fit; the message has its size and the flags to try.
    CheckFailed
        The loss is no longer a finite number.
    KeyboardInterrupt
        Ctrl-C; the last checkpoint is kept and the way to resume was said.
    """
    if name is not None:
        check_name(name)
    home, tell, device = home or Home.locate(), teller(quiet), _check_machine(config, at_once)
    check_compile(config, device)  # not where a run is resumed: it goes on as it began
    config = with_source(config, home)
    runs: list[Path] = []
    results: list[RunResult] = []
    seeds = tuple(seeds) if seeds else (config.training.seed,)
    for seed in seeds:
        apply_overrides(config, [f"training.seed={seed}"])  # refuses a wrong seed before any is trained
    for line in differences(config)[: None if explain else 1]:
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
        initial = fitting_weights(seeded, data, tell if seed == seeds[0] else lambda _: None)
        memory = plan_memory(seeded, data, device)
        chosen = name if name is None or len(seeds) == 1 else f"{name}-seed{seed}"
        opened: AbstractContextManager[Path | None] = nullcontext()  # the first process of the run has it
        if is_main_process():
            unique = chosen or run_name(seeded.variant, seed)
            opened = new_run(home, data.label, seeded.model.name, unique, exact=chosen is not None)
        with opened as folder:
            if folder is not None:
                if initial:
                    write_weights(folder / INITIAL, initial)
                write_file(folder / CONFIG_NAME, to_toml(seeded).encode())
            if at_once == 1:
                job = Job(seeded, data, folder, device, memory, profile and not runs)
                results.append(fit(job, tell=tell, quiet=quiet))
            runs.append(folder or Path())
    if at_once > 1:
        devices = config.system.devices
        results = run_side_by_side(
            runs, home=home, at_once=at_once, device=device, devices=devices, tell=tell
        )
    return Summary(runs, results)


def resume(
    run: str | Path,
    *,
    home: Home | None = None,
    overrides: Sequence[str] = (),
    quiet: bool = False,
    profile: bool = False,
    **build_options: Any,
) -> Summary:
    """Go on with a run from its last checkpoint; a finished run is returned as it is.

    A run that was stopped before its first one begins anew. A finished run whose result cannot be read
    gets a new one, measured from its checkpoint.

    On a CPU the weights become the same, bit for bit, as those of a run that never stopped
    (with the same number of threads and versions).

    Parameters
    ----------
    overrides
        ``KEY=VALUE`` for keys of :data:`CHANGEABLE`, from here on; written into the run's ``config.toml``.
    profile
        Trace some steps.

    Raises
    ------
    UsageError
        Another key is to be changed, there is no such run, or another process is working on it.
    DamagedInput
        Its configuration or checkpoint cannot be read.
    CheckFailed
        The dataset is not the one that the run began with.
    """
    for override in overrides:
        if (key := override.partition("=")[0].strip()) not in CHANGEABLE:
            raise UsageError(
                "A resumed run goes on as it began.",
                expected=f"one of {', '.join(CHANGEABLE)}",
                found=f"--set {key}",
                next="leave it out, or begin another run with --dataset",
            )
    home, tell = home or Home.locate(), teller(quiet)
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
    refuse_links(folder)
    config = own_choices(config, folder, home, tell)
    with build_lock(folder, wait=False) if is_main_process() else nullcontext():
        config = apply_overrides(config, overrides)
        device = _check_machine(config)
        data = open_data(config, home=home, quiet=quiet, **build_options)
        config = data.pinned(config)
        memory = plan_memory(config, data, device)
        if overrides and is_main_process():
            write_file(folder / CONFIG_NAME, to_toml(config).encode())
        job = Job(config, data, folder, device, memory, profile)
        return Summary([folder], [fit(job, tell=tell, quiet=quiet)])


def _check_machine(config: RunConfig, at_once: int = 1) -> Device:
    """Choose the device; raise UsageError for what it cannot do, or a missing logger."""
    device = choose_device(config.system.device, config.system.devices * at_once)
    check_precision(config.training.precision, device)
    config.model.attention.check_device(device.kind)
    check_logger(config.system.logger)
    return device
