# The public names, each imported on use: type checkers read this file, and so does __init__.py.
from kmip_data.datasets.base import open as open  # noqa: A004
from kmip_data.datasets.inputs import LocalDegreeProfile as LocalDegreeProfile
from kmip_data.datasets.lightning import GraphDataModule as GraphDataModule
from kmip_data.datasets.pyg import GNNBenchmarkDataset as GNNBenchmarkDataset
from kmip_data.datasets.pyg import LRGBDataset as LRGBDataset
from kmip_data.datasets.pyg import ShapeNet as ShapeNet
from kmip_data.datasets.shipped import COCOSP as COCOSP
from kmip_data.datasets.shipped import ECHO as ECHO
from kmip_data.datasets.shipped import S3DIS as S3DIS
from kmip_data.datasets.shipped import CIFAR10Superpixels as CIFAR10Superpixels
from kmip_data.datasets.shipped import CityNetwork as CityNetwork
from kmip_data.datasets.shipped import GraphLandDataset as GraphLandDataset
from kmip_data.datasets.shipped import LongRange as LongRange
from kmip_data.datasets.shipped import MalNetTiny as MalNetTiny
from kmip_data.datasets.shipped import PascalVOCSP as PascalVOCSP
from kmip_data.datasets.shipped import PCQMContact as PCQMContact
from kmip_data.datasets.shipped import PeptidesFunc as PeptidesFunc
from kmip_data.datasets.shipped import PeptidesStruct as PeptidesStruct
from kmip_data.datasets.shipped import ShapeNetPart as ShapeNetPart
from kmip_data.reading.batching import batch_neighbors as batch_neighbors
from kmip_data.reading.batching import expand_edges as expand_edges
from kmip_data.reading.dataset import ShardedDataset as ShardedDataset
from kmip_data.reading.loader import GraphLoader as GraphLoader
from kmip_data.saving.save import save as save

__version__: str
