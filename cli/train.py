"""``kmip-data train``: train a model on a dataset, by default with a preset of the paper."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from kmip_data.cli.shared.dataset_options import DatasetCommand, DatasetParameters
from kmip_data.cli.shared.options import (
    PLUGINS_META_KEY,
    device_option,
    long_running_options,
    number_option,
    offline_option,
    parse_distinct_numbers,
    parse_number_list,
    path_option,
    plugin_option,
    sample_option,
    set_option,
    typed_options,
)
from kmip_data.cli.shared.output import Json, format_facts, print_result
from kmip_data.cli.shared.targets import BUILD, RUN
from kmip_data.errors import Command, Setting, Step, UsageError, as_steps
from kmip_data.runtime.progress import print_status
from kmip_data.text import human_bytes, list_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.models.reports.shipped_results import ShippedResult
    from kmip_data.models.training.config.compose import ConfigurationOptions
    from kmip_data.models.training.config.run_config import RunConfig
    from kmip_data.models.training.run.summary import RunSummary


#: Section of the help -> options.
OPTION_SECTIONS = {
    "Data": (
        "--dataset", "--sample", "--k", "--limit", "--split-rule", "--split-seed", "--test-area",
        "--neighbor-sampling", "--offline",
    ),
    "Model": ("--model", "--variant", "--preset", "--set", "--config", "--init-from"),
    "Run": ("--epochs", "--stop-after", "--seeds", "--folds", "--name", "--resume", "--reproduce"),
    "Machine": (
        "--device", "--devices", "--plugin", "--home", "--json", "--quiet", "-h",
    ),
}  # fmt: skip


@click.command(
    cls=DatasetCommand, parameter_groups=("records", "split"), option_sections=OPTION_SECTIONS
)
@click.argument("positional", metavar="[NAME]", required=False, type=BUILD)
@click.option("--dataset", metavar="NAME", type=BUILD, help="Same as the argument NAME.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model name.  [default: gps-kmip; for your own data, sage]",
)
@click.option(
    "--variant",
    metavar="VARIANT",
    help="Variant of the preset: code (upstream's file), text, or another.  "
    "[default: the variant of the paper's result]",
)
@click.option(
    "--preset",
    metavar="DATASET/MODEL",
    help="Use the preset of another dataset, such as squirrel-filtered/gcn, if it fits the data; "
    "`kmip-data info NAME` lists them.",
)
@set_option("Configuration key, such as optimizer.lr=1e-3; may be repeated (docs/keys.md).")
@path_option(
    "--config",
    "file",
    exists=True,
    help="Configuration instead of a preset, such as the config.toml of a run.",
)
@click.option(
    "--seeds",
    metavar="LIST",
    help="Seeds, such as 0..3 or 0,5: one run for each, and their mean.",
)
@click.option(
    "--folds",
    metavar="LIST",
    help="Published splits, such as 0..9: one run for each, and their mean.",
)
@number_option(
    "--epochs",
    "Number of epochs.  [default: the preset's; 3 for a sample]",
)
@number_option("--stop-after", "End the run after N epochs of a longer schedule.")
@device_option()
@number_option("--devices", "Number of devices of this machine.  [default: 1]")
@click.option(
    "--name", metavar="RUN_NAME", help="Name of the run.  [default: time, variant and seed]"
)
@click.option("--resume", metavar="RUN", type=RUN, help="Resume a stopped run.")
@click.option(
    "--reproduce",
    metavar="ROW",
    help="Reproduce a result shipped with kmip-data, such as helsinki/gcn, and compare.",
)
@click.option(
    "--init-from",
    metavar="RUN",
    type=RUN,
    help="Fine-tune: start from the weights of a finished run, where names and shapes match.",
)
@click.option(
    "--neighbor-sampling",
    "neighbors",
    metavar="N,N",
    callback=lambda _context, option, text: (
        None if text is None else parse_number_list(option.opts[0], text)
    ),
    help="For one large graph: train on subgraphs with at most N neighbours per node in each hop, such as 10,10.",
)
@offline_option
@plugin_option
@sample_option
@long_running_options
def command(
    positional: str | None,
    dataset: str | None,
    file: Path | None,
    resume: str | None,
    reproduce: str | None,
    seeds: str | None,
    folds: str | None,
    name: str | None,
    offline: bool,
    home: Home,
    quiet: bool,
    parameters: DatasetParameters,
    **settings: Unpack[ConfigurationOptions],
) -> None:
    """Train a model, after building its dataset if necessary.

    NAME is a dataset name or a build folder. The run folder contains configuration,
    metrics, checkpoints, weights and result. Options such as --k and --split-rule select a build and a
    split; --set takes configuration keys, such as data.split.val_fraction=0.2.
    """
    if positional is not None and dataset is not None:
        raise UsageError(
            f"Two datasets are named: {positional} and {dataset}.",
            steps=[Command("kmip-data train", name) for name in (positional, dataset)],
        )
    dataset = dataset or positional
    _require_one_source(dataset or file, resume, reproduce)

    # 1. Resume a run, with its own configuration.
    row = None
    typed = typed_options()
    options: Json = {"home": home, "quiet": quiet, "offline": offline}
    if resume is not None:
        _refuse_other_options("--resume", resume, typed)
        from kmip_data.models.training.run.train import resume as resume_run

        summary = resume_run(
            resume,
            devices=settings["devices"],
            stop_after=settings["stop_after"],
            **options,
        )
    else:
        # 2. Compose the configuration of a new run from a published row, a file or a preset.
        if reproduce is not None:
            _refuse_other_options("--reproduce", reproduce, typed)
            from kmip_data.models.reports.shipped_results import read_shipped_result

            row = read_shipped_result(reproduce)
            dataset = row.dataset
            seeds = seeds or ",".join(map(str, dict.fromkeys(row.seeds)))
            folds = ",".join(map(str, row.folds)) or None
            settings |= _settings_of_row(row, settings["stop_after"])
        _refuse_second_model(typed)
        options |= {
            "seeds": None if seeds is None else parse_distinct_numbers("--seeds", seeds),
            "folds": None if folds is None else parse_distinct_numbers("--folds", folds),
        }
        from kmip_data.models.training.config.compose import compose_configuration

        config = compose_configuration(
            dataset,
            parameters.records,
            parameters.split,
            home=home,
            file=file,
            quiet=quiet,
            **settings,
        )
        if folds is not None and name is None:
            from kmip_data.models.sweeps.plans import changed_keys_digest

            # The same command gives the same name, and so finds its runs.
            name = f"folds-{changed_keys_digest(config)}"

        # 3. Build missing data, then train. All names, keys and sources are checked before torch is
        # imported, which takes seconds.
        _prepare_data(config, name, options)
        print_status("Loading PyTorch", quiet=quiet)
        from kmip_data.models.training.run.train import train

        summary = train(config, name=name, **options)
    from kmip_data.models.training.processes import is_main_process

    if is_main_process():  # with --devices, only the first process prints
        _print_summary(summary, row)


def _require_one_source(data: str | Path | None, resume: str | None, reproduce: str | None) -> None:
    """Refuse none or several of: a dataset or configuration, a run to resume, a row to reproduce."""
    sources = [data is not None, resume is not None, reproduce is not None]
    if sum(sources) == 1:
        return
    step = Command("kmip-data train --help")
    if resume is not None:
        step = _command_with_only("--resume", resume)
    elif reproduce is not None:
        step = _command_with_only("--reproduce", reproduce)
    raise UsageError(
        "A dataset, a configuration or a run must be named.",
        expected="NAME (or --dataset NAME), --config FILE, --resume RUN or --reproduce ROW",
        found="several of them" if any(sources) else "none of them",
        steps=step,
    )


def _print_summary(summary: RunSummary, row: ShippedResult | None) -> None:
    """Print the results, and the next commands for the first run."""
    from kmip_data.builds.home import Home, unused_name
    from kmip_data.columns.column_roles import column_roles_on_card
    from kmip_data.models.training.config.overrides import read_config
    from kmip_data.models.training.run.find_runs import build_of_result
    from kmip_data.models.training.run.run_folder import CONFIG_NAME, run_option_text

    run = summary.runs[0]
    home = Home(run.parents[3])
    build = build_of_result(summary.results[0], home)
    paragraphs = [f"{summary.table()}\n", *(f"run  {run}" for run in summary.runs)]
    paragraphs.append(f"{format_facts(_result_facts(summary))}\n")
    if summary.reference_sentence:
        from kmip_data.models.training.references.advice import line_to_try

        line = line_to_try(summary.runs, summary.results, build)
        paragraphs.append(f"{summary.reference_sentence}{line}\n")
    steps = []
    name = "NAME"
    if build is not None and column_roles_on_card(build.card.statistics):
        name = unused_name("new", home)
        steps.append(
            f"kmip-data build graphs --name {name} --archive FILE "
            f"--like {shlex.quote(summary.results[0].dataset)}{run_option_text(run)}"
        )
    # A training adds the encodings that its network reads; a prediction never changes a build.
    if encodings := read_config(run / CONFIG_NAME).model.encodings:
        names = " ".join(encoding.name for encoding in encodings)
        steps.append(f"kmip-data encode {name} {names}{run_option_text(run)}")
    steps.append(f"{_command_for_first_run('predict', summary)} --dataset {name}")
    paragraphs.append(f"On new data, with or without labels: {'; then: '.join(steps)}")
    data = summary.to_dict()
    if row is not None:
        from kmip_data.models.reports.shipped_results import check_reproduced

        data["reproduced"], compared = check_reproduced(row, summary)
        paragraphs.insert(0, f"{compared}\n")
    print_result(data, *paragraphs, steps=[_command_for_first_run("explore", summary)])


def _settings_of_row(row: ShippedResult, stop_after: int | None) -> ConfigurationOptions:
    """Return the settings that repeat a row of the shipped results."""
    # A row may have stopped before the end of its schedule.
    last_epoch = min(stop_after or row.epochs, row.epochs)
    return {
        "model": row.model,
        "variant": row.variant,
        "epochs": row.schedule_epochs,
        "overrides": row.set,
        "stop_after": last_epoch if last_epoch < row.schedule_epochs else None,
    }


def _result_facts(summary: RunSummary) -> list[tuple[str, object]]:
    """Return the test result next to a constant answer and the paper's result, time and memory."""
    from kmip_data.models.training.config.paper_comparison import compare_with_paper
    from kmip_data.models.training.config.run_config import RunConfig
    from kmip_data.models.training.metric_text import format_metric_with_unit
    from kmip_data.models.training.metrics import all_metrics
    from kmip_data.models.training.run.summary import mean_std

    first = summary.results[0]
    mean, _ = mean_std([result.metrics for result in summary.results])
    test = mean.get("test", {}).get(first.metric)
    test_result = ""
    if test is not None:
        spread = summary.spread["test"].get(first.metric)
        test_result = f"{all_metrics()[first.metric].title} {format_metric_with_unit(first.metric, test, spread)}"
        constant = first.references.get("constant")
        if constant is not None and constant.test is not None:
            value = format_metric_with_unit(first.metric, constant.test)
            tie = f" ({constant.note})" if constant.note else ""
            test_result += f"; a constant answer has {value}{tie}"
    comparison = compare_with_paper(RunConfig.model_validate(first.config))
    total_seconds = sum(result.seconds.total for result in summary.results)
    epoch_seconds = sum(result.seconds.train_epoch for result in summary.results)
    epoch_seconds /= len(summary.results)
    host_memory = max(result.memory.host for result in summary.results)
    return [
        ("test", test_result),
        (
            "paper",
            "" if comparison is None or comparison.sample else comparison.paper_value,
        ),
        (
            "time",
            f"{total_seconds:,.1f} s of training, {epoch_seconds:,.2f} s an epoch without evaluation",
        ),
        ("memory", f"{human_bytes(host_memory)} at most"),
    ]


def _command_for_first_run(name: str, summary: RunSummary) -> Command:
    """Return the command ``name`` for the first run, with its home and plugins."""
    from kmip_data.models.training.run.run_folder import run_options, short_run_name

    run = summary.runs[0]
    return Command("kmip-data", name, short_run_name(run), *run_options(run))


def _prepare_data(config: RunConfig, name: str | None, options: Json) -> None:
    """Build the data of a run if missing, and refuse data that no network can learn from.

    Nothing is built for a run on a GPU, which this machine may lack.
    """
    from kmip_data.columns.column_roles import column_roles_on_card
    from kmip_data.format.targets import require_trainable
    from kmip_data.manifest import dataset_names, load_manifest
    from kmip_data.models.training.run.run_folder import check_run_name
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.find_builds import ensure_split, find_build, find_or_build
    from kmip_data.pipelines.parameters import check_params

    if name is not None:
        check_run_name(name)
    home = options["home"]
    data = config.data
    if data.dataset not in dataset_names():
        build = find_build(data.dataset, data.parameters, home=home, sample=data.sample)
    elif config.system.device == "cuda":
        pipeline = load_pipeline(load_manifest(data.dataset))
        check_params(pipeline.Params, data.parameters, data.dataset)
        check_params(pipeline.SplitParams, data.split, data.dataset)
        return
    else:
        build_options = {option: options[option] for option in ("home", "quiet", "offline")}
        build = find_or_build(
            data.dataset, data.parameters, data.split, sample=data.sample, **build_options
        )

    try:
        require_trainable(build.card, build.path, needs_features=data.features == "all")
    except UsageError as error:
        described = column_roles_on_card(build.card.statistics)
        if other := _other_build_with_targets(build, home):
            error.steps = ["an earlier build with targets", Command("kmip-data train", other)]
            error.correction = (data.dataset, other)
        elif build.card.schema_.y_column is None and described is not None:
            error.steps = _steps_without_targets(data.dataset, build, home)
        raise
    ensure_split(build, data.split)


def _steps_without_targets(dataset: str, build: Build, home: Home) -> list[Step]:
    """Return the steps for tables without targets: build them with a target, or predict it."""
    from kmip_data.builds.home import unused_name
    from kmip_data.cli.shared.build_summary import target_candidates
    from kmip_data.columns.column_roles import column_roles_on_card
    from kmip_data.models.training.run import find_runs

    described = column_roles_on_card(build.card.statistics)
    candidates = target_candidates(build.card)
    # A build with --like and without targets is meant for predictions.
    if not candidates or (described is not None and described.task):
        run = find_runs.find_compatible_run(build, home)
        return [Command("kmip-data predict {} --dataset", run or "RUN", dataset)]
    label = candidates[0] if len(candidates) == 1 else "COLUMN"
    command = find_runs.command_of_own_build(
        unused_name(build.card.dataset, home),
        {**build.card.parameters, "label": label},
        find_runs.raw_folder_of_build(build, home),
    )
    words = f"COLUMN is the target: {list_names(map(repr, candidates))}"
    return as_steps(command) if label != "COLUMN" else [words, *as_steps(command)]


def _other_build_with_targets(build: Build, home: Home) -> str | None:
    """Return the folder name of the newest other build of this dataset that has targets, or None."""
    from kmip_data.builds.home import list_builds, matching_builds
    from kmip_data.format.targets import require_trainable

    for other in matching_builds(list_builds(home, build.card.dataset), {}):
        with contextlib.suppress(UsageError):
            require_trainable(other.card, other.path)
            return other.path.name
    return None


def _refuse_second_model(typed: set[str]) -> None:
    """Refuse options that name a model next to a configuration or preset that already has one."""
    for option, others in {
        "--config": {"--model", "--preset", "--variant"},
        "--preset": {"--model"},
    }.items():
        if option in typed and (ignored := typed & others):
            raise UsageError(
                f"{option} names its model itself, so {min(ignored)} has no effect.",
                steps=Setting({min(ignored)[2:]: None}),
            )


#: Option that names a finished run or row -> options that may be combined with it.
_COMPATIBLE_OPTIONS = {
    "--resume": {"--devices", "--stop-after"},
    "--reproduce": {"--seeds", "--device", "--name", "--stop-after"},
}
#: Options that may be combined with both.
_ALWAYS_COMPATIBLE_OPTIONS = {"--home", "--json", "--quiet", "--plugin", "--offline"}


def _refuse_other_options(option: str, value: str, typed: set[str]) -> None:
    """Refuse options that would change the settings of a run or row."""
    refused = typed - {option} - _COMPATIBLE_OPTIONS[option] - _ALWAYS_COMPATIBLE_OPTIONS
    if refused:
        raise UsageError(
            f"{value} is trained with its own settings, without {', '.join(sorted(refused))}.",
            steps=[
                "for other settings, train another run",
                _command_with_only(option, value),
            ],
        )


def _command_with_only(option: str, value: str) -> Command:
    """Return the typed command with only the options that are compatible with ``option``."""
    context = click.get_current_context()
    words = [option, value]
    for param in context.command.params:
        flag = param.opts[0]
        if flag not in typed_options() & (_COMPATIBLE_OPTIONS[option] | _ALWAYS_COMPATIBLE_OPTIONS):
            continue
        if flag == "--plugin":
            for source in context.meta[PLUGINS_META_KEY]:
                words += [flag, source]
        elif isinstance(param, click.Option) and param.is_flag:
            words.append(flag)
        else:
            typed = context.params[str(param.name)]
            words += [flag, str(typed.path if flag == "--home" else typed)]
    return Command("kmip-data train", *words)
