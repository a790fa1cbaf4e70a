# The public names, each imported on use: type checkers and lazy_loader read this file.
from .attention.bigbird import BigBirdAttention as BigBirdAttention
from .attention.exphormer import ExphormerAttention as ExphormerAttention
from .attention.exphormer import ExphormerEdges as ExphormerEdges
from .attention.kmip import KMIPAttention as KMIPAttention
from .attention.kmip import kmip_attention as kmip_attention
from .attention.multihead import KMIPMultiheadAttention as KMIPMultiheadAttention
from .attention.performer import PerformerAttention as PerformerAttention
from .attention.transformer import TransformerAttention as TransformerAttention
from .config import ModelConfig as ModelConfig
from .layers.batch import GraphBatch as GraphBatch
from .layers.batch import read_batch as read_batch
from .network import GPSLayer as GPSLayer
from .network import build_model as build_model
from .search.topk import backend_status as backend_status
from .search.topk import topk_inner_product as topk_inner_product
from .training.config.presets import load_preset as load_preset
from .training.run.predictions import evaluate_predictions as evaluate_predictions
