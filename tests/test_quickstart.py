"""Every snippet of docs/quickstart.md runs as it stands, offline and in an empty home."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from support.cli import python
from torch_geometric.data import Batch, Data

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "quickstart.md").read_text("utf-8")
CITY, MANY, LAYER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("snippet", [CITY, MANY], ids=["one city", "many graphs"])
def test_a_snippet_runs(snippet, tmp_path) -> None:
    out = python("-c", snippet, cwd=tmp_path, KMIP_DATA_HOME=str(tmp_path / "home")).out
    if snippet is CITY:
        accuracy = float(re.search(r"test accuracy ([\d.]+)%", out)[1])
        assert accuracy > 20  # ten classes


def test_attention_stands_beside_a_convolution() -> None:
    names: dict = {}
    exec(LAYER, names)
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [Data(x=torch.randn(n, 64), edge_index=edges) for n in (3, 30)]
    batch = Batch.from_data_list(graphs)
    assert names["layer"](batch.x, batch).shape == (33, 64)


def test_every_dataset_class_is_in_the_table() -> None:
    import kmip_data
    from kmip_data.reading.dataset import ShardedDataset

    classes = {name for name in kmip_data.__all__ if isinstance(getattr(kmip_data, name), type)}
    datasets = {name for name in classes if issubclass(getattr(kmip_data, name), ShardedDataset)}
    for name in datasets - {"ShardedDataset"}:
        assert f"`{name}`" in PAGE or f'`{name}("' in PAGE, name
