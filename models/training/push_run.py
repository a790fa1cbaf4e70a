"""Share a finished run: weights, configuration, result and a page, but nothing executable."""

from __future__ import annotations

import shlex
from pathlib import Path

from kmip_data.files.small_files import sha256_file
from kmip_data.format.build_files import PAGE_NAME
from kmip_data.format.card import coverage_suffix
from kmip_data.format.card_page import code_block
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.metric_text import ERROR_NOTE, metrics_table
from kmip_data.models.training.references.reference import mean_references, references_table
from kmip_data.models.training.run.checkpoint import read_weights
from kmip_data.models.training.run.result import RunResult, read_result, refuse_edited
from kmip_data.models.training.run.run_folder import CONFIG_NAME, WEIGHTS_NAME
from kmip_data.sharing.push import push_files, yaml_header
from kmip_data.sharing.push_index import RUN_FILES, PushIndex


def push_run(run: Path, address: str, *, quiet: bool = False) -> PushIndex:
    """Push a finished run.

    Raises ``DamagedInput`` for a damaged or edited file, or like :func:`push_files`.
    """
    result = read_result(run)
    refuse_edited(run)
    read_config(run / CONFIG_NAME)
    read_weights(run / WEIGHTS_NAME, result.files.get(WEIGHTS_NAME))
    content: dict[str, Path | bytes] = {}
    for name in RUN_FILES:
        if (run / name).is_file():
            content[name] = run / name
    content[PAGE_NAME] = run_page(result).encode()
    key = sha256_file(run / WEIGHTS_NAME)[0][:12]
    return push_files(address, "run", run, key, content, expected_digests=result.files, quiet=quiet)


def run_page(result: RunResult) -> str:
    """Return the model card of a run, with the YAML header that a hub expects."""
    coverage = coverage_suffix(result.sample, result.complete)
    measured = result.metrics.get("test", {})
    entry = {
        "task": {"type": "graph-ml"},
        "dataset": {"name": result.dataset, "type": result.dataset},
        "metrics": [{"type": name, "value": value} for name, value in measured.items()],
    }
    tags = ["graph", "kmip-data", result.model, result.dataset]
    if coverage:
        tags.append("sample")
    fields: dict[str, object] = {
        "library_name": "kmip-data",
        "pipeline_tag": "graph-ml",
        "tags": tags,
        "model-index": [{"name": result.name, "results": [entry]}],
    }
    watched = f"{result.metric} on {result.watched_part}"
    facts = [
        f"{result.model} on {result.dataset}{coverage}",
        f"{result.num_parameters:,} parameters, seed {result.seed}",
        f"weights of epoch {result.best_epoch + 1} of {result.epochs}, the best by {watched}",
        f"build {result.build_key}, split {result.split.name}",
        ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items())),
    ]
    if result.dataset in dataset_names():
        facts.append(f"the data it learned from: {load_manifest(result.dataset).license.notice}")
    tables = [
        metrics_table(
            result.metrics, {"test": {**result.standard_errors}}, loss_title=result.loss_title
        ),
        ERROR_NOTE if result.standard_errors else "",
        references_table(mean_references([result.references]), result.metric),
    ]
    pull = "kmip-data pull ADDRESS"
    evaluate = f"kmip-data evaluate {shlex.quote(f'./{result.name}')} --dataset {shlex.quote(result.dataset)}"
    parts = [
        yaml_header(fields) + "\n# A trained model",
        code_block("\n".join(facts), "text"),
        code_block("\n\n".join(filter(None, tables)), "text"),
        "`config.toml` has every setting, `model.safetensors` the weights, `result.json` all results.",
        code_block(f"{pull} && {evaluate}", "bash"),
    ]
    return "\n\n".join(parts) + "\n"
