"""Commands and options of previous versions: one error that names the new spelling."""

from __future__ import annotations

import click
from support.cases import check_each
from support.cli import refused

from kmip_data.cli.main import COMMANDS, root
from kmip_data.cli.shared.commands import OLD_SPELLINGS
from kmip_data.cli.shared.datasets import RECORDS, TYPED
from kmip_data.manifest import dataset_names


def _options(name: str) -> set[str]:
    command = root.get_command(click.Context(root), name)
    return {word for param in command.params for word in param.opts}


def test_each_old_spelling_ends_in_an_error_with_the_new_one(home):
    def check(case):
        command, option, new = case
        assert f"next: {new}" in refused(*command.split(), option)
        known = COMMANDS if not command else _options(command) if " " not in command else ()
        assert option not in known, "it still exists"

    lines = [(name, *old) for name, of in OLD_SPELLINGS.items() if name != "*" for old in of.items()]
    check_each(check, lines)


def test_each_parameter_of_a_dataset_that_is_no_option_names_its_key(home):
    train = root.get_command(click.Context(root), "train")

    def check(dataset):
        for store, option in train._parameters(dataset):
            if option.name not in TYPED:
                word = f"--{option.name.replace('_', '-')}"
                configured = "data.parameters." if store == RECORDS else "data.split."
                assert f"--set {option.name}=" in refused("build", dataset, word, "1")
                assert f"--set {configured}{option.name}=" in refused("train", "--dataset", dataset, word, 1)

    check_each(check, dataset_names())


def test_the_rule_of_a_split_is_not_its_part(home):
    assert "next: --split-rule" in refused("build", "s3dis", "--split", "room")
    assert "next: --split PART" in refused("predict", "run", "--part", "val")
