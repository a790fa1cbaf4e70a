"""``kmip-data verify``: check every byte of a build or run, and repair a damaged build."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.dataset_options import (
    DatasetCommand,
    DatasetParameters,
)
from kmip_data.cli.shared.options import (
    jobs_option,
    long_running_options,
    plugin_option,
    raw_file_options,
    sample_option,
)
from kmip_data.cli.shared.output import print_result
from kmip_data.cli.shared.targets import RUN_OR_BUILD, find_build_or_run
from kmip_data.errors import CheckFailed, Command, Step, UsageError
from kmip_data.text import count_with_noun, one_line

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=DatasetCommand)
@click.argument("name", type=RUN_OR_BUILD)
@click.option("--repair", is_flag=True, help="Rebuild damaged files and keep the others.")
@click.option("--published", is_flag=True, help="Also compare digests with the published ones.")
@sample_option
@raw_file_options
@jobs_option
@plugin_option
@long_running_options
def command(
    name: str,
    repair: bool,
    published: bool,
    sample: bool,
    home: Home,
    parameters: DatasetParameters,
    **options: Any,
) -> None:
    """Check every byte of a build, and repair a damaged one.

    Checks card, splits, columns, digests, schema, pointers, indices, finite features and label
    ranges. If something is wrong, names each broken shard and exits with code 1. For a finished
    run, checks the digests of its files; a repair replaces links by their content and renames an
    edited configuration to config.toml.moved. Adds the marker file .kmip-data to an intact folder
    that lacks it; commands change only folders with this file.
    """
    from kmip_data.builds.verify import files_unlike_published, verify_build
    from kmip_data.files.atomic_writes import build_marker_content, marker_content, write_marker
    from kmip_data.format.card import read_card

    source = find_build_or_run(name, home, parameters, sample=sample)
    if isinstance(source, Path):
        _verify_run(source, repair=repair)
        return

    path = source.path
    rebuilt = []
    report = verify_build(path)
    is_repaired = repair and bool(report.problems or report.outdated)
    if is_repaired:
        from kmip_data.pipelines.engine.repair import repair_build

        rebuilt = repair_build(path, home=home, **options)
        report = verify_build(path)
    text = []
    if rebuilt:
        text.append(f"Rebuilt: {', '.join(rebuilt)}")
    pinned = False
    if report.ok:
        card = read_card(path)
        pinned = card.pinned
        if marker_content(path) is None:
            with contextlib.suppress(UsageError):  # the folder may be read-only
                write_marker(path, build_marker_content(card.key))
        counts = []
        for item, count in report.checked.items():
            counts.append(count_with_noun(count, item.removesuffix("s")))
        text.append(f"{path} is sound: {', '.join(counts)}.")
        if card.raw_file_status:
            text.append(f"Raw files: {card.raw_file_status}.")
        if published:
            if unlike := files_unlike_published(card):
                raise CheckFailed(
                    f"{path} is sound, but not the published build: {', '.join(unlike)}.",
                    steps="compare the versions of numpy, h5py and scipy with the constraints file",
                )
            text.append("All digests are the published ones.")
    result = {
        "path": path,
        "ok": report.ok,
        "pinned": pinned,
        "checked": report.checked,
        "broken_shards": report.broken_shards,
        "problems": list(map(vars, report.problems)),
        "repaired": rebuilt,
        "notes": report.notes,
    }
    print_result(result, *text, *map(one_line, report.notes))
    if report.ok:
        return

    state = "broken"
    left = None
    step: Step = Command("kmip-data verify {} --repair", path)
    if is_repaired:
        state = "still broken after the repair"
        left = f"rebuilt: {', '.join(rebuilt) or 'nothing'}; the rest as it was"
        step = f"check the disk, then move {path} elsewhere and build it again"
    raise CheckFailed(
        f"{path} is {state}.", found=[*map(str, report.problems)], left=left, steps=step
    )


def _verify_run(run: Path, *, repair: bool) -> None:
    """Check the files of a finished run; repair what can be repaired, and mark a sound run."""
    from kmip_data.files.atomic_writes import write_marker
    from kmip_data.models.training.run.run_folder import CONFIG_NAME, RUN_MARKER, config_command
    from kmip_data.models.training.verify_run import repair_run, verify_run

    problems = verify_run(run)
    repairable = [problem.file for problem in problems if problem.is_repairable]
    if repair and repairable:
        repair_run(run, repairable)
        problems = verify_run(run)
        repairable = []
    if not problems:
        write_marker(run, RUN_MARKER)
    text = [] if problems else [f"{run} is sound."]
    lines = [*map(str, problems)]
    print_result({"path": run, "ok": not problems, "problems": lines}, *text)
    if not problems:
        return

    steps: list[Step] = ["train it again", config_command(run)]
    if any(problem.file == CONFIG_NAME for problem in problems):
        steps = ["with your settings", Command("kmip-data train", run.parents[1].name)]
    if repairable:
        steps = [Command("kmip-data verify {} --repair", run)]
    raise CheckFailed(f"{run} is broken.", found=lines, steps=steps)
