"""Descriptions in Python: read, shown, edited and built with."""

from __future__ import annotations

import pytest

import kmip_data
from kmip_data.errors import OpenQuestions, UsageError

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


def test_what_cannot_be_described(files):
    description = kmip_data.describe(files, parameters={"label": ["group"]})
    with pytest.raises(UsageError, match="'agee' at 0 levels"):
        description.with_use("agee", "category")
    (files / "nodes.csv").write_text(NODES.replace("x", "-1").replace("y", "0"))
    with pytest.raises(OpenQuestions) as caught:
        kmip_data.describe(files, parameters={"label": ["group"]})
    assert list(caught.value.questions.values()) == ["--set missing=none"]
