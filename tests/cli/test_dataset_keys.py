"""Parameters of datasets as options and as keys of ``--set``."""

from __future__ import annotations

import click
from support.cases import check_each
from support.cli import refused

from kmip_data.cli.main import root
from kmip_data.cli.shared.datasets import RECORDS, keep_settings
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.wording import OPTIONS


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


def test_the_rule_of_a_split_is_not_its_part(home):
    assert "--split-rule" in refused("build", "s3dis", "--split", "room")
    assert not home.exists()
