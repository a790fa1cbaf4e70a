"""k in training: read, moved from epoch to epoch, ended where it is evaluated; a number for each layer."""

from __future__ import annotations

import pytest
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.cli.train import configuration
from kmip_data.errors import UsageError
from kmip_data.models.attention import kmip
from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.schedules import KSchedule
from kmip_data.models.training.run.train import train


@pytest.mark.parametrize("text", ["linear:50:5", "cosine:50:5", "cosine:3:9"])
def test_begins_and_ends_where_it_says(text: str) -> None:
    schedule = KSchedule.parse(text)
    values = [schedule.at(epoch, 10) for epoch in range(10)]
    assert (values[0], values[-1]) == (schedule.first, schedule.last)
    assert values == sorted(values, reverse=schedule.first > schedule.last)
    assert schedule.at(0, 1) == schedule.last


def test_a_line_and_half_a_cosine() -> None:
    assert [KSchedule.parse("linear:10:2").at(epoch, 5) for epoch in range(5)] == [10, 8, 6, 4, 2]
    assert [KSchedule.parse("cosine:101:0001").at(epoch, 3) for epoch in range(3)] == [101, 51, 1]


@pytest.mark.parametrize(
    "text", ["cosine", "cosine:5", "cosine:5:0", "cosine:5:-1", "step:5:2", "linear:5:2:1"]
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match="not a schedule of k"):
        KSchedule.parse(text)


def test_a_run_trains_by_it_and_evaluates_at_its_end(tmp_path, monkeypatch) -> None:
    used = []
    attend = kmip.attend_to_best

    def noting(queries, keys, values, k, **options):
        used.append((queries.requires_grad, k))
        return attend(queries, keys, values, k, **options)

    config = tiny_config(
        learnable_build(tmp_path / "build", graphs=6),
        model={"layers": 1, "k": 2},
        training={"epochs": 3, "k_schedule": "linear:6:2"},
    )
    monkeypatch.setattr(kmip, "attend_to_best", noting)
    train(config, home=Home(tmp_path / "home"), quiet=True)
    steps = [k for training, k in used[used.index((True, 6)) :] if training]
    assert list(dict.fromkeys(steps)) == [6, 4, 2]
    assert {k for training, k in used if not training} == {2}


def options(**more):
    given = {"model": "gps-kmip", "variant": "code", "epochs": None, "overrides": [], **more}
    return configuration("s3dis", {}, {}, **given)


def test_on_the_command_line(tmp_path) -> None:
    config = options(k_schedule="cosine:50:5")
    assert (config.model.attention.k, config.training.k_schedule) == (5, "cosine:50:5")
    assert config.data.parameters.get("k") != 5
    assert options(attention_k="7").model.attention.k == 7
    assert options(attention_k="1,2,3,4,5,6,7,8").model.attention.k == (1, 2, 3, 4, 5, 6, 7, 8)
    assert options(overrides=["model.k=[8,7,6,5,4,3,2,1]"]).model.attention.k == (8, 7, 6, 5, 4, 3, 2, 1)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"attention_k": "0"}, "--attention-k 5"),
        ({"attention_k": "3,4"}, "there are 8 layers"),
        ({"attention_k": "7", "k_schedule": "cosine:50:5"}, "ends at 5, and model.attention.k is 7"),
        ({"k_schedule": "cosine:50:x"}, "not a schedule of k"),
    ],
)
def test_refusals(given, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        options(**given)
    assert word in str(caught.value)


def test_a_number_for_each_layer(tmp_path) -> None:
    config = ModelConfig(layers=3, k=(3, 4, 5), hidden_dim=8, heads=2)
    model = build_model(config, in_channels=2, num_classes=2)
    assert [layer.attention.k for layer in model.layers] == [3, 4, 5]
    build = learnable_build(tmp_path / "build", graphs=6)
    run = tiny_config(build, model={"layers": 2, "k": [3, 4]}, training={"epochs": 1})
    found = train(run, home=Home(tmp_path / "home"), quiet=True).runs[0]
    assert read_config(found / "config.toml").model.attention.k == (3, 4)
