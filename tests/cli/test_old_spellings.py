"""Commands and options of previous versions: one error that names the new spelling."""

from __future__ import annotations

import click
from support.cli import kmip

from kmip_data.cli.main import COMMANDS, root
from kmip_data.cli.shared.commands import OLD_SPELLINGS
from kmip_data.cli.shared.datasets import TYPED, options_of
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline


def _options(name: str) -> set[str]:
    command = root.get_command(click.Context(root), name)
    return {word for param in command.params for word in param.opts}


def test_each_old_spelling_ends_in_an_error_with_the_new_one(home):
    failed = {}
    for command, options in OLD_SPELLINGS.items():
        for option, new in options.items():
            if command == "*":
                continue
            line = [option] if not command else [*command.split(), option]
            outcome = kmip(*line)
            if outcome.code != 2 or f"next: {new}" not in outcome.err:
                failed[" ".join(line)] = outcome.err
            known = COMMANDS if not command else _options(command.split()[0]) if " " not in command else ()
            if option in known:
                failed[" ".join(line)] = "it still exists"
    assert not failed


def test_each_parameter_of_a_dataset_that_is_no_option_names_its_key(home):
    failed = {}
    for dataset in dataset_names():
        pipeline = load_pipeline(load_manifest(dataset))
        for model, configured in (
            (pipeline.Params, "data.parameters."),
            (pipeline.SplitParams, "data.split."),
        ):
            for option in options_of(model, "test"):
                if option.name in TYPED:
                    continue
                word = f"--{option.name.replace('_', '-')}"
                for line, key in (
                    (["build", dataset, word, "1"], f"--set {option.name}="),
                    (["train", "--dataset", dataset, word, "1"], f"--set {configured}{option.name}="),
                ):
                    outcome = kmip(*line)
                    if outcome.code != 2 or key not in outcome.err:
                        failed[" ".join(line)] = outcome.err
    assert not failed


def test_the_rule_of_a_split_is_not_its_part(home):
    assert "next: --split-rule" in kmip("build", "s3dis", "--split", "room").err
    assert "next: --split PART" in kmip("predict", "run", "--part", "val").err
