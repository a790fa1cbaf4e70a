# The public names, each imported on use: type checkers and lazy_loader read this file.
from .datasets.base import open as open  # noqa: A004
from .datasets.inputs import LocalDegreeProfile as LocalDegreeProfile
from .datasets.lightning import GraphDataModule as GraphDataModule
from .datasets.pyg import GNNBenchmarkDataset as GNNBenchmarkDataset
from .datasets.pyg import LRGBDataset as LRGBDataset
from .datasets.pyg import ShapeNet as ShapeNet
from .datasets.shipped import COCOSP as COCOSP
from .datasets.shipped import ECHO as ECHO
from .datasets.shipped import S3DIS as S3DIS
from .datasets.shipped import ZINC as ZINC
from .datasets.shipped import CIFAR10Superpixels as CIFAR10Superpixels
from .datasets.shipped import CityNetwork as CityNetwork
from .datasets.shipped import GeomGCN as GeomGCN
from .datasets.shipped import GraphLandDataset as GraphLandDataset
from .datasets.shipped import HeterophilousGraphDataset as HeterophilousGraphDataset
from .datasets.shipped import LongRange as LongRange
from .datasets.shipped import MalNetTiny as MalNetTiny
from .datasets.shipped import MNISTGraphs as MNISTGraphs
from .datasets.shipped import OGBGMolHIV as OGBGMolHIV
from .datasets.shipped import OGBGMolPCBA as OGBGMolPCBA
from .datasets.shipped import OGBNArxiv as OGBNArxiv
from .datasets.shipped import OGBNPapers100M as OGBNPapers100M
from .datasets.shipped import OGBNProducts as OGBNProducts
from .datasets.shipped import PascalVOCSP as PascalVOCSP
from .datasets.shipped import PCQM4Mv2 as PCQM4Mv2
from .datasets.shipped import PCQM4Mv2Subset as PCQM4Mv2Subset
from .datasets.shipped import PCQMContact as PCQMContact
from .datasets.shipped import PeptidesFunc as PeptidesFunc
from .datasets.shipped import PeptidesStruct as PeptidesStruct
from .datasets.shipped import Planetoid as Planetoid
from .datasets.shipped import SBMCluster as SBMCluster
from .datasets.shipped import SBMPattern as SBMPattern
from .datasets.shipped import ShapeNetPart as ShapeNetPart
from .reading.batching import batch_neighbors as batch_neighbors
from .reading.batching import expand_edges as expand_edges
from .reading.dataset import ShardedDataset as ShardedDataset
from .reading.loader import GraphLoader as GraphLoader
from .saving.save import save as save

__version__: str
