"""The logged line on the paper's result that a run is compared with."""

from __future__ import annotations

import pytest

from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.paper_comparison import compare_with_paper
from kmip_data.models.training.config.presets import config_for_data, preset_names, read_preset

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
def test_a_run_prints_the_papers_result_and_its_source(name):
    for variant in (None, "text"):
        assert (
            compare_with_paper(config_for_data(*name.split("/"), variant)).line
            == f"the paper's result: {LINES[name]}"
        )


def test_every_preset_with_a_paper_result_prints_it():
    for name in preset_names():
        figure = read_preset(*name.split("/")).paper
        comparison = compare_with_paper(config_for_data(*name.split("/")))
        assert (comparison and comparison.paper_result) == figure, name
        assert not (comparison and comparison.differing_keys), name


def test_a_run_without_a_paper_result_prints_none():
    for dataset, model in (("helsinki", "gps-kmip"), ("mine", "gcn"), ("london", "exphormer")):
        assert compare_with_paper(config_for_data(dataset, model)) is None
    other_metric = apply_overrides(config_for_data("london"), ["training.metric=f1"])
    assert compare_with_paper(other_metric) is None
    config = config_for_data("london")
    data = config.data.model_copy(update={"dataset": "helsinki"})
    assert compare_with_paper(config.model_copy(update={"data": data})) is None


def test_differences_from_the_papers_settings_are_named():
    def other(*items, variant=None):
        return compare_with_paper(
            apply_overrides(config_for_data("london", variant=variant), items)
        )

    assert other("training.seed=3").differing_keys == []
    line = other("training.epochs=3", "data.sample=true").line
    ending = "; of the complete data, not of a sample; this run has other values of training.epochs"
    assert line.endswith(ending)
    assert other(variant="code").differing_keys == ["model.layers"]
    small = other(variant="small-city")
    assert small.line.endswith(", ".join(small.differing_keys))


def test_another_k_is_compared_with_the_result_for_that_k():
    config = apply_overrides(config_for_data("malnet-tiny"), ["model.attention.k=100"])
    assert (
        compare_with_paper(config).paper_result.mean,
        compare_with_paper(config).differing_keys,
    ) == (
        93.4,
        [],
    )
    config = apply_overrides(config_for_data("peptides-func"), ["model.attention.k=100"])
    assert (
        compare_with_paper(config).paper_result.mean == 66.27
    )  # the experiment has other settings on Peptides
    assert compare_with_paper(config).differing_keys == ["model.attention.k"]
