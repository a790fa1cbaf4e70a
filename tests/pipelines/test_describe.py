"""Descriptions in Python: read, shown, edited and built with."""

from __future__ import annotations

import numpy as np
import pytest
from support.raises import raises

import kmip_data
from kmip_data.errors import OpenQuestions, Setting, UsageError

NODES = "id,age,country,group\na,1,NL,x\nb,2,BE,y\nc,3,NL,x\nd,2,BE,y\n"
EDGES = "source,target,years\na,b,1\nb,c,2\nc,d,3\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


def test_description_is_edited_and_built_with(files, tmp_path):
    description = kmip_data.describe(files, parameters={"label": ["group"]})
    shown = description._repr_html_()
    assert "<td>country</td><td>category</td>" in shown
    edited = description.with_use("age", "category").with_use("years", "ignored")
    source = {"path": files, "like": edited}
    build = kmip_data.build_own("graphs", "edited", source, root=tmp_path / "home", quiet=True)
    graph = kmip_data.open(build.path, split=None)[0]
    assert graph.x.tolist() == [  # age=1, age=2, age=3, country=BE, country=NL
        [1, 0, 0, 0, 1],
        [0, 1, 0, 1, 0],
        [0, 0, 1, 0, 1],
        [0, 1, 0, 1, 0],
    ]
    assert "edge_attr" not in graph
    assert graph.y.tolist() == [0, 1, 0, 1]
    assert not list((tmp_path / "home").glob("*/described*")), "a description keeps nothing"


def test_a_source_with_only_a_path_may_be_the_path(files, tmp_path_factory):
    options = {"home": tmp_path_factory.mktemp("home"), "parameters": {"label": "group"}}
    for source in (files, str(files), {"path": files}):
        build = kmip_data.build_own("graphs", "mine", source, quiet=True, **options)
        assert build.card.counts["nodes"] == 4
    for wrong in ([files], None):
        with pytest.raises(UsageError):
            kmip_data.build_own("graphs", "wrong", wrong, **options)


def test_what_cannot_be_described(files):
    description = kmip_data.describe(files, parameters={"label": ["group"]})
    with raises(UsageError, naming="agee"):
        description.with_use("agee", "category")
    with raises(UsageError, naming="'category'"):
        description.with_use("age", "categorical")
    (files / "nodes.csv").write_text(NODES.replace("x", "-1").replace("y", "0"))
    with pytest.raises(OpenQuestions) as caught:
        kmip_data.describe(files, parameters={"label": ["group"]})
    assert list(caught.value.questions.values()) == [Setting(missing="group:none")]


def test_clouds_and_pictures_are_described_and_built_with(tmp_path):
    """A changed description of clouds is built with, and one of pictures is not for clouds."""
    pytest.importorskip("skimage")
    image = pytest.importorskip("PIL.Image")
    for number in range(4):
        kind = ["oak", "elm"][number % 2]
        for folder in ("clouds", "pictures"):
            (tmp_path / folder / kind).mkdir(parents=True, exist_ok=True)
        rows = np.random.default_rng(number).random((9, 3)).round(3)
        np.savetxt(tmp_path / "clouds" / kind / f"{number}.txt", rows)
        pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
        image.fromarray(pixels).save(tmp_path / "pictures" / kind / f"{number}.png")
    described = {
        "points": kmip_data.describe(tmp_path / "clouds", "points", parameters={"k": 3}),
        "superpixels": kmip_data.describe(
            tmp_path / "pictures", "superpixels", parameters={"superpixels": 4}
        ),
    }
    for recipe, field, folder in (
        ("points", "path", "clouds"),
        ("superpixels", "images", "pictures"),
    ):
        description = described[recipe]
        assert "<td>classes</td><td>elm,oak</td>" in description._repr_html_()
        edited = description.with_parameters(classes="oak,elm", class_name=["oak", "elm"])
        source = {field: tmp_path / folder, "like": edited}
        build = kmip_data.build_own(recipe, folder, source, root=tmp_path / "home", quiet=True)
        data = kmip_data.open(build.path, split=None)
        assert tuple(data.card.class_names) == ("oak", "elm")
        assert [int(item.y) for item in data] == [1, 1, 0, 0]
    source = {"path": tmp_path / "clouds", "like": described["superpixels"]}
    with raises(UsageError, naming="points"):
        kmip_data.build_own("points", "other", source, root=tmp_path / "home")
