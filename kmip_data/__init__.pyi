# The public names, each imported on use: type checkers and lazy_loader read this file.
from . import errors as errors
from . import graphs as graphs
from . import models as models
from . import plugins as plugins
from .datasets.city import CityNetwork as CityNetwork
from .datasets.city import GraphLandDataset as GraphLandDataset
from .datasets.lightning import GraphDataModule as GraphDataModule
from .datasets.malnet import MalNetTiny as MalNetTiny
from .datasets.molecules import ZINC as ZINC
from .datasets.molecules import OGBGMolHIV as OGBGMolHIV
from .datasets.molecules import OGBGMolPCBA as OGBGMolPCBA
from .datasets.molecules import PCQM4Mv2 as PCQM4Mv2
from .datasets.molecules import PCQM4Mv2Subset as PCQM4Mv2Subset
from .datasets.molecules import PCQMContact as PCQMContact
from .datasets.molecules import PeptidesFunc as PeptidesFunc
from .datasets.molecules import PeptidesStruct as PeptidesStruct
from .datasets.nodes import GeomGCN as GeomGCN
from .datasets.nodes import HeterophilousGraphDataset as HeterophilousGraphDataset
from .datasets.nodes import OGBNArxiv as OGBNArxiv
from .datasets.nodes import OGBNPapers100M as OGBNPapers100M
from .datasets.nodes import OGBNProducts as OGBNProducts
from .datasets.nodes import Planetoid as Planetoid
from .datasets.opening import open as open  # noqa: A004
from .datasets.points import S3DIS as S3DIS
from .datasets.points import ShapeNetPart as ShapeNetPart
from .datasets.pyg_named_datasets import GNNBenchmarkDataset as GNNBenchmarkDataset
from .datasets.pyg_named_datasets import LRGBDataset as LRGBDataset
from .datasets.pyg_named_datasets import ShapeNet as ShapeNet
from .datasets.superpixels import COCOSP as COCOSP
from .datasets.superpixels import CIFAR10Superpixels as CIFAR10Superpixels
from .datasets.superpixels import MNISTGraphs as MNISTGraphs
from .datasets.superpixels import PascalVOCSP as PascalVOCSP
from .datasets.synthetic import ECHO as ECHO
from .datasets.synthetic import LRIM as LRIM
from .datasets.synthetic import GeneratedLRIM as GeneratedLRIM
from .datasets.synthetic import LongRange as LongRange
from .datasets.synthetic import SBMCluster as SBMCluster
from .datasets.synthetic import SBMPattern as SBMPattern
from .datasets.transforms import LocalDegreeProfile as LocalDegreeProfile
from .reading.batching import batch_neighbors as batch_neighbors
from .reading.batching import expand_edges as expand_edges
from .reading.dataset import ShardedDataset as ShardedDataset
from .reading.loader import GraphLoader as GraphLoader
from .reading.neighbor_loader import NeighborLoader as NeighborLoader
from .saving.save import save as save

__version__: str
