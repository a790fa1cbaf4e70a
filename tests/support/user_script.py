"""A user's script, checked by mypy and basedpyright and never run: ``tests/test_typing.py``."""

from typing import assert_type

from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, GPSConv

import kmip_data
from kmip_data import S3DIS, GraphLoader
from kmip_data.builds.home import Build
from kmip_data.models import KMIPAttention, KMIPMultiheadAttention, kmip_attention, load_preset
from kmip_data.pipelines.find_builds import find_build

dataset = S3DIS(split="train", k=32, sample=True)
assert_type(dataset[0], Data)
assert_type(dataset[:10], S3DIS)
assert_type(kmip_data.open("helsinki")[0], Data)
assert_type(find_build("s3dis"), Build)
for item in dataset:
    assert_type(item, Data)
layer = KMIPAttention(9, heads=3, key_dim=16, k=10)
for batch in GraphLoader(dataset, batch_size=8, shuffle=True):
    graphs: Batch = batch
    assert graphs.num_graphs == 8
    out: Tensor = layer(batch.x, batch.batch)
conv = GPSConv(64, GINConv(nn.Linear(64, 64)), heads=4)
conv.attn = KMIPMultiheadAttention(64, 4, k=load_preset("s3dis").training.epochs, batch_first=True)
rows = Tensor(4, 100, 16)
assert_type(kmip_attention(rows, rows, rows, 10), Tensor)
