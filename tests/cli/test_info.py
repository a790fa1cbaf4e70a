"""``info``: what it says of datasets and builds."""

from __future__ import annotations

import re
from pathlib import Path

from support.cli import expect_success

from kmip_data.format.build_facts import BuildFacts
from kmip_data.format.build_files import PAGE_NAME
from kmip_data.format.card import read_card


def test_info_of_a_dataset_lists_its_builds(make_build):
    text = expect_success("info", "shapenet-part").out
    facts = (
        "16,881",
        "train 12,137",
        "Terms of Use",
        "https://",
        "--archive PATH",
        "gps-kmip",
        "Airplane/0",
    )
    assert [fact for fact in facts if fact not in text] == []
    result = expect_success("info", "shapenet-part", "--json").json
    assert result["expected"]["graphs"] == 16_881
    stacks = ["gat", "gated-gcn", "gcn", "gine"]
    attention = ["gps-bigbird", "gps-kmip", "gps-none", "gps-performer", "gps-transformer"]
    assert result["presets"] == ["exphormer", *stacks, *attention]
    assert result["builds"] == []
    make_build()
    assert "s3dis-k4" in expect_success("info", "s3dis").out
    assert "s3dis-k4" not in expect_success("info", "shapenet-part").out


def test_info_of_a_recipe_names_its_required_input(home):
    text = expect_success("info", "points").out
    assert "kmip-data build points --name NAME" in text
    assert "kmip_data.open(NAME)" in text


def test_info_shows_degrees_and_the_classes_of_each_part(home_of_sample):
    target = ("info", "s3dis", "--sample", "--limit", "12", "--k", "4", "--home", home_of_sample)
    text, card = expect_success(*target).out, expect_success(*target, "--json").json
    folder = Path(card["path"])
    assert text == expect_success("info", folder).out
    for fact in (str(folder), str(folder / PAGE_NAME), "node/x", "edge/neighbor", card["key"]):
        assert fact in text
    counts, default = card["statistics"]["classes"], card["default_split"]
    total, train = counts["total"], counts["splits"][default]["train"]
    (wall,) = (line for line in text.splitlines() if line.split()[1:2] == ["wall"])
    for part in (total, train):
        assert f" {part[2]:,} ({part[2] / sum(part):.2%})" in wall
    (train,) = (line for line in text.splitlines() if f"{default} (default)  train" in line)
    assert f"{card['splits'][default]['parts']['train']['nodes']:,}" in train
    assert f"{card['statistics']['out_degree']['mean']:,.2f}" in text

    # The page has the same facts.
    page = (folder / PAGE_NAME).read_text().replace("\\", "")
    for label, value in BuildFacts(read_card(folder)).values(default):
        assert f"\n{label} " in text
        assert all(f"  {line}" in text for line in value.splitlines()), label
        assert f"| {label} | {value.replace(chr(10), '<br>')} |" in page


def test_a_preset_shows_its_default_variant_and_the_papers_figure():
    out = expect_success("info", "london", "--model", "gps-kmip").out
    assert re.search(r"^variant +paper-depth$", out, re.MULTILINE)
    assert re.search(r"^model\.layers +7$", out, re.MULTILINE)
    assert all(len(line) <= 80 for line in out.splitlines())
    out = " ".join(out.split())
    assert re.search(r" variants [^\[]*\[default: paper-depth\] ", out)
    source = "paper, table of City-Networks results and table of their training times"
    assert f"accuracy 56.05 %, 1 run ({source})" in out


def test_info_of_a_preset_shows_its_main_keys():
    shown = {}
    for dataset in ("london", "zinc"):
        lines = (
            expect_success("info", dataset, "--model", "gps-kmip").out.split("\n\n")[0].splitlines()
        )
        rows = [line.split() for line in lines[1:] if re.match(r"[a-z]", line)]
        assert not {"None", "()", "{}", "True"} & {row[1] for row in rows}
        shown[dataset] = {row[0] for row in rows}
    assert not [key for key in shown["london"] if "lappe" in key or "exphormer" in key]
    assert "model.attention.k" in shown["london"]
    encodings = {key.split(".")[1] for key in shown["zinc"] if key.count(".") == 2}
    assert encodings == {"attention", "local", "rwse"}


def test_a_preset_shows_the_published_size_if_there_is_one():
    text = expect_success("info", "s3dis", "--model", "gps-kmip").out
    assert "8 layers × 56 channels: 282,181 parameters" in text
    assert "published size" not in expect_success("info", "s3dis", "--model", "mlp").out
