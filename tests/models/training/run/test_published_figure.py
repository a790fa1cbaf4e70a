"""The line of a log on the published result that a run aims at."""

from __future__ import annotations

import pytest

from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data, preset_names, read_preset
from kmip_data.models.training.run.published_result import find_published_result

CITY = "paper, table of City-Networks results and table of their training times"
LRGB = "paper, table of LRGB results"
POINTS = "paper, table of point cloud results; hours from its plotting code"


LINES = {
    "london/gps-kmip": f"accuracy 56.05 %, 1 run ({CITY})",
    "london/gat": f"accuracy 57.19 ± 1.09 %, 4 runs ({CITY})",
    "peptides-struct/gcn": f"MAE 0.2460 ± 0.0007, 4 runs ({LRGB}, which takes it from Tönshoff et al.)",
    "s3dis/exphormer": f"mIoU 68.37 ± 0.23 %, 3 runs ({POINTS})",
}


@pytest.mark.parametrize("name", LINES)
def test_a_run_prints_the_published_figure_and_its_source(name):
    for variant in (None, "text"):
        assert (
            find_published_result(config_for_data(*name.split("/"), variant)).line
            == f"published: {LINES[name]}"
        )


def test_every_preset_with_a_published_figure_prints_it():
    for name in preset_names():
        figure = read_preset(*name.split("/")).paper
        published_result = find_published_result(config_for_data(*name.split("/")))
        assert (published_result and published_result.paper_result) == figure, name
        assert not (published_result and published_result.differing_keys), name


def test_a_run_without_a_published_figure_prints_none():
    for dataset, model in (("helsinki", "gps-kmip"), ("mine", "gcn"), ("london", "exphormer")):
        assert find_published_result(config_for_data(dataset, model)) is None
    other_metric = apply_overrides(config_for_data("london"), ["training.metric=f1"])
    assert find_published_result(other_metric) is None
    config = config_for_data("london")
    data = config.data.model_copy(update={"dataset": "helsinki"})
    assert find_published_result(config.model_copy(update={"data": data})) is None


def test_differences_from_the_published_settings_are_named():
    def other(*items, variant=None):
        return find_published_result(
            apply_overrides(config_for_data("london", variant=variant), items)
        )

    assert other("training.seed=3").differing_keys == []
    line = other("training.epochs=3", "data.sample=true").line
    ending = "; of the complete data, not of a sample; this run has other values of training.epochs"
    assert line.endswith(ending)
    assert other(variant="code").differing_keys == ["model.layers"]
    small = other(variant="small-city")
    assert small.line.endswith(", ".join(small.differing_keys))


def test_another_k_aims_at_the_figure_of_that_k():
    config = apply_overrides(config_for_data("malnet-tiny"), ["model.attention.k=100"])
    assert (
        find_published_result(config).paper_result.mean,
        find_published_result(config).differing_keys,
    ) == (
        93.4,
        [],
    )
    config = apply_overrides(config_for_data("peptides-func"), ["model.attention.k=100"])
    assert (
        find_published_result(config).paper_result.mean == 66.27
    )  # the experiment has other settings on Peptides
    assert find_published_result(config).differing_keys == ["model.attention.k"]
