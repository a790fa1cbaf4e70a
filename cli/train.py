"""``kmip-data train``: a model on a dataset, from the paper's preset."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kmip_data.cli.shared.dataset_command import RECORDS, SPLITS, DatasetCommand, given
from kmip_data.cli.shared.names import RUN, TARGET
from kmip_data.cli.shared.options import (
    jobs_option,
    number_list,
    number_option,
    raw_options,
    sample_option,
    work_options,
)
from kmip_data.cli.shared.output import print_json
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kmip_data.builds.home import Home
    from kmip_data.models.training.config.keys import RunConfig
    from kmip_data.models.training.run.result import Summary


BUILD_OPTIONS = ("archives", "offline", "accept_license", "jobs")  #: of what is built first


class TrainCommand(DatasetCommand):
    """``train``, where ``--k`` is the attention's if the dataset has no parameter of that name."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, ``--attention-k`` with its short name where that is free."""
        found = super().get_params(ctx)
        if not any("--k" in param.opts for param in found):
            place = next(i for i, param in enumerate(found) if param.name == "attention_k")
            found[place] = copy.copy(found[place])
            found[place].opts = [*found[place].opts, "--k"]
        return found


@click.command(
    cls=TrainCommand,
    splits=True,
    examples=[
        "kmip-data train --dataset s3dis --epochs 5 --device cpu",
        "kmip-data train --dataset s3dis --k 16 --test-area 5 --seeds 0..3",
        "kmip-data train --dataset shapenet-part --as text --set optimiser.lr=5e-4 --device cuda",
        "kmip-data train --dataset helsinki --epochs 3 --coordinates append",
        "kmip-data train --dataset helsinki --init-from helsinki/gps-kmip/20261120-071806-code-seed0",
        "kmip-data train --resume s3dis/gps-kmip/20261120-071806-code-seed0",
    ],
)
@click.option("--dataset", metavar="TARGET", type=TARGET, help="A dataset, or a build folder.")
@click.option("--model", default="gps-kmip", show_default=True, metavar="NAME", help="Which model.")
@click.option(
    "--as",
    "variant",
    metavar="VARIANT",
    default="code",
    show_default=True,
    help="Where the paper's code and text disagree: what ran (code), or what is written (text); or another"
    " variant of the preset, such as paper-depth.",
)
@number_option("--epochs", "Epochs.  [default: the preset's]")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), help="[default: auto, a GPU if there is one]"
)
@number_option("--devices", "Devices of this machine.  [default: 1]")
@click.option(
    "--scale",
    type=click.Choice(["global", "batch"]),
    help="Several devices: divide the preset's batch among them (global), or take batches and a learning rate"
    " that grow with their number.  [default: global]",
)
@click.option(
    "--seeds", metavar="LIST", help="Such as 0..3 or 0,5: one run per seed, with mean and deviation."
)
@click.option(
    "--seeds-at-once",
    "at_once",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    help="Seeds trained at a time, each on devices of its own or its share of the cores.  [default: 1]",
)
@click.option(
    "--precision",
    type=click.Choice(["32", "tf32", "bf16x3", "16-mixed", "bf16-mixed"]),
    help="Arithmetic of the model.  [default: the preset's]",
)
@click.option(
    "--search",
    metavar="BACKEND",
    help="How the k best keys are found, such as keops, the paper's way; the result is the same."
    "  [default: auto]",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile the model with torch.compile.")
@click.option(
    "--logger",
    type=click.Choice(["csv", "tensorboard", "wandb", "mlflow"]),
    help="Where metrics go beside metrics.csv.  [default: csv alone]",
)
@click.option(
    "--coordinates",
    type=click.Choice(["replace", "append", "none"]),
    help="Cities: sinusoids instead of longitude and latitude, beside them, or neither."
    "  [default: the preset's]",
)
@click.option(
    "--attention-k",
    "attention_k",
    metavar="K[,K…]",
    help="Keys that a query attends to, for all layers or one number each; also --k where the dataset has no"
    " parameter k.  [default: the preset's]",
)
@click.option(
    "--k-schedule",
    metavar="SHAPE:FROM:TO",
    help="How that number moves over the run, such as cosine:50:5 or linear:50:5; it is evaluated at TO.",
)
@click.option(
    "--neighbor-sampling",
    "neighbors",
    metavar="N,N",
    help="One large graph: train on parts of it, with at most N neighbours per node in each hop.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other key of the configuration, such as optimiser.lr=1e-3; may be repeated.",
)
@click.option("--explain", is_flag=True, help="List where the paper's text and code differ, key by key.")
@click.option(
    "--init-from",
    "init_from",
    metavar="RUN",
    type=RUN,
    help="Fine-tune: begin with the weights of a finished run, wherever name and shape fit.",
)
@click.option(
    "--profile", is_flag=True, help="Trace a few steps into trace.json, and print what took longest."
)
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Write a checkpoint within an epoch, too, to go on from there.  [default: after each epoch]",
)
@click.option("--name", metavar="NAME", help="Name of the run folder.  [default: time, variant and seed]")
@click.option("--resume", metavar="RUN", type=RUN, help="Go on with a run that was stopped.")
@jobs_option
@sample_option
@raw_options
@work_options
def command(
    dataset: str | None,
    resume: str | None,
    seeds: str | None,
    name: str | None,
    explain: bool,
    profile: bool,
    at_once: int,
    home: Home,
    as_json: bool,
    quiet: bool,
    **chosen: Any,
) -> None:
    """Train a model, building what is missing first.

    The run folder keeps configuration, metrics, checkpoints, weights, result and learning curves.
    Dataset and split take the same parameters as `kmip-data build`.
    """
    build_options = {option: chosen.pop(option) for option in BUILD_OPTIONS}
    if (dataset is None) == (resume is None):
        raise UsageError(
            "A dataset or a run must be named, one of the two.",
            expected="--dataset TARGET, or --resume RUN",
            found="neither" if dataset is None else "both",
            next="kmip-data train --help",
        )
    # Names, keys and values are checked before torch is imported, which takes seconds.
    if resume is not None:
        _refuse_changes()
        from kmip_data.models.training.run.train import resume as resume_run

        build_options |= {"overrides": chosen["overrides"], "profile": profile}
        summary = resume_run(resume, home=home, quiet=quiet, **build_options)
    else:
        config = configuration(str(dataset), given(RECORDS), given(SPLITS), home=home, **chosen)
        numbers = None if seeds is None else list(dict.fromkeys(number_list("--seeds", seeds)))
        from kmip_data.models.training.run.train import train

        run: dict[str, Any] = {"seeds": numbers, "name": name, "explain": explain, "profile": profile}
        summary = train(config, home=home, quiet=quiet, at_once=at_once, **run, **build_options)
    from kmip_data.models.training.memory.machine import is_main_process

    if not is_main_process():  # of --devices N: the others have the same to say
        return
    if as_json:
        print_json(summary.to_dict())
    else:
        click.echo(report(summary))


def _refuse_changes() -> None:
    """Raise UsageError for an option that would make a resumed run another one."""
    context = click.get_current_context()
    kept = {"resume", "overrides", "profile", "home", "as_json", "quiet", *BUILD_OPTIONS}
    changes = [
        parameter.opts[-1]
        for parameter in context.command.params
        if parameter.name not in kept
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if changes:
        raise UsageError(
            "A resumed run goes on as it began.",
            expected="--resume RUN alone, or with --set optimiser.lr=…: the run's config.toml says the rest",
            found=", ".join(changes),
            next="leave them out, or begin another run with --dataset",
        )


#: Options of the line to the key of the configuration that they set.
KEYS = {
    "sample": "data.sample",
    "coordinates": "data.coordinates",
    "search": "model.attention.search",
    "attention_k": "model.attention.k",
    "k_schedule": "training.k_schedule",
    "neighbors": "training.neighbors",
    "init_from": "training.init_from",
    "precision": "training.precision",
    "device": "system.device",
    "devices": "system.devices",
    "scale": "training.scale",
    "compiled": "system.compile",
    "logger": "system.logger",
    "checkpoint_every": "system.checkpoint_every",
}


def configuration(
    target: str,
    records: Mapping[str, Any],
    split: Mapping[str, Any],
    *,
    home: Home | None = None,
    **options: Any,
) -> RunConfig:
    """Return the preset of the dataset with everything that was given on the line, ``--set`` last.

    ``records`` and ``split`` are parameters that were given; ``options`` are ``model``, ``variant``,
    ``epochs`` (a warm-up that would fill them is shortened), ``overrides``, and by the names of :data:`KEYS`
    what ``None`` and ``False`` leave as the preset has it. Unset, the attention's k is where a schedule of k
    ends.
    """
    from kmip_data.models.training.config.overrides import apply_overrides, with_epochs
    from kmip_data.models.training.config.presets import config_for

    config = config_for(target, options["model"], options["variant"], home=home)
    data = {
        "parameters": {**config.data.parameters, **records},
        "split": {**config.data.split, **split},
        # The seed given is the one that is meant, whatever the run's.
        "split_seed_follows_run": config.data.split_seed_follows_run and "split_seed" not in split,
    }
    config = config.model_copy(update={"data": config.data.model_copy(update=data)})
    last = (options.get("k_schedule") or "").rpartition(":")[2]
    if options.get("attention_k") is None and last.isdecimal():
        options["attention_k"] = last
    for name, option in (("attention_k", "--attention-k"), ("neighbors", "--neighbor-sampling")):
        if (text := options.get(name)) is not None:
            numbers = number_list(option, text)
            options[name] = numbers[0] if name == "attention_k" and len(numbers) == 1 else numbers
    chosen = {KEYS[name]: value for name, value in options.items() if name in KEYS}
    settings = [f"{key}={value}" for key, value in chosen.items() if value is not None and value is not False]
    config = apply_overrides(config, settings)
    if options["epochs"] is not None:
        config = with_epochs(config, options["epochs"])
    return apply_overrides(config, options["overrides"])


def report(summary: Summary) -> str:
    """Return the result table, where the runs lie, and what to do next."""
    lines = [summary.table(), ""]
    lines += [f"run  {run}" for run in summary.runs]
    lines.append(f"Next: kmip-data evaluate {summary.runs[0]}")
    return "\n".join(lines)
