"""Commands and options of previous versions: one error that names the new spelling."""

from __future__ import annotations

import click
from support.cases import check_each
from support.cli import refused

from kmip_data.cli.main import COMMANDS, root
from kmip_data.cli.shared.commands import read_table
from kmip_data.cli.shared.datasets import RECORDS, keep_settings
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.wording import OPTIONS


def test_each_old_spelling_ends_in_an_error_with_the_new_one(home):
    spellings = read_table("spellings")

    def check(old):
        command, _, option = old.rpartition(" ")
        assert f"next: {spellings[old]}" in refused(*old.split(), "1")
        if command:
            known = root.get_command(click.Context(root), command).params
            assert option not in {word for param in known for word in param.opts}, "it still exists"

    check_each(check, set(spellings) - {"--part"})
    assert not spellings.keys() & COMMANDS.keys()
    assert not home.exists()
    assert "--split-rule" in refused(
        "build", "s3dis", "--split", "room"
    )  # the rule of a split is not its part
    assert "next: --split PART" in refused("predict", "run", "--part", "val")


def test_each_parameter_of_a_dataset_that_is_no_option_is_a_key():
    def check(dataset):
        pipeline = load_pipeline(load_manifest(dataset))
        for name in {**pipeline.Params.model_fields, **pipeline.SplitParams.model_fields}:
            if name not in OPTIONS:
                with click.Context(root) as context:
                    keep_settings(dataset, [f"{name}=1", f"{name.replace('_', '-')}=2"])
                    [(store, values)] = context.meta.items()
                assert values in ({name: "2"}, {name: ["1", "2"]})
                assert (store == RECORDS) is (name in pipeline.Params.model_fields)

    check_each(check, dataset_names())
