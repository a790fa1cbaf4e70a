# The public names, each imported on use: type checkers read this file, and so does __init__.py.
from kmip_data.models.attention.bigbird import BigBirdAttention as BigBirdAttention
from kmip_data.models.attention.exphormer import ExphormerAttention as ExphormerAttention
from kmip_data.models.attention.exphormer import ExphormerEdges as ExphormerEdges
from kmip_data.models.attention.kmip import KMIPAttention as KMIPAttention
from kmip_data.models.attention.kmip import kmip_attention as kmip_attention
from kmip_data.models.attention.multihead import KMIPMultiheadAttention as KMIPMultiheadAttention
from kmip_data.models.attention.performer import PerformerAttention as PerformerAttention
from kmip_data.models.attention.transformer import TransformerAttention as TransformerAttention
from kmip_data.models.config import ModelConfig as ModelConfig
from kmip_data.models.layers.batch import GraphBatch as GraphBatch
from kmip_data.models.layers.batch import read_batch as read_batch
from kmip_data.models.network import GPSLayer as GPSLayer
from kmip_data.models.network import build_model as build_model
from kmip_data.models.search.topk import backend_status as backend_status
from kmip_data.models.search.topk import topk_inner_product as topk_inner_product
from kmip_data.models.training.config.presets import load_preset as load_preset
from kmip_data.models.training.run.predictions import evaluate_predictions as evaluate_predictions
