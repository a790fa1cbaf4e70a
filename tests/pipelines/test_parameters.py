"""Values of parameters that would build nonsense are refused, for every dataset and before any work."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError
from support.cases import check_each
from support.cli import expect_refusal
from support.raises import raises

from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.parameters import check_params

#: Parameters to which 0 says something: seeds, "no such part", the value of void pixels, "blocks
#: touch".
ZERO = {
    "seed",
    "split_seed",
    "block_seed",
    "val_fraction",
    "test_fraction",
    "void",
    "buffer",
    "fold",
}


def numbers() -> list[tuple[str, type[BaseModel], str]]:
    rows = []
    for dataset in dataset_names():
        pipeline = load_pipeline(load_manifest(dataset))
        for model in (pipeline.Params, pipeline.SplitParams):
            for name, field in model.model_fields.items():
                if {int, float} & {field.annotation, *get_args(field.annotation)}:
                    rows.append((dataset, model, name))
    return rows


def test_numbers_out_of_range_are_refused():
    def check(case):
        dataset, model, name = case
        wrong = [-1, math.nan, math.inf, -math.inf]
        wrong += [] if name in ZERO else [0]
        wrong += [] if name in {"limit", "block", "block_size", "block_seed"} else [10**30]
        for value in wrong:
            with raises(UsageError, naming=[dataset, f"{name} = {value!r}"]):
                check_params(model, {name: value}, dataset)

    check_each(check, numbers())


def test_parameters_without_effect_are_refused():
    for dataset, values in (
        ("superpixels", {"superpixels": 1}),
        ("superpixels", {"classes": 1}),
        ("points", {"classes": 1}),
        ("points", {"class_name": ("ground",)}),
    ):
        with pytest.raises((UsageError, ValidationError)):
            check_params(load_pipeline(load_manifest(dataset)).Params, values, dataset)


def test_zero_hops_are_refused(tmp_path) -> None:
    message = expect_refusal(
        "build", "helsinki", "--set", "hops=0", "--offline", "--home", tmp_path
    )
    assert "hops = '0'" in message
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["helsinki", "paris", "city"])
def test_a_limit_of_a_city_is_the_size_of_a_sample(name, tmp_path) -> None:
    source = (
        ["--name", "x", "--set", f"osm_file={tmp_path / 'no such file'}"] if name == "city" else []
    )
    line = ("build", name, *source, "--limit", 100, "--offline", "--home", tmp_path, "--jobs", 1)
    assert "--limit 100" in expect_refusal(*line)
    assert not any(tmp_path.iterdir())


def test_one_text_stands_for_a_list_of_one() -> None:
    graphs = load_pipeline(load_manifest("graphs")).Params
    shapenet = load_pipeline(load_manifest("shapenet-part")).Params

    assert check_params(graphs, {"label": "cancer"}, "graphs").label == ("cancer",)
    assert check_params(graphs, {"source": "from"}, "graphs").source == "from"
    assert check_params(shapenet, {"category": "Chair"}, "shapenet-part").category == ("Chair",)
