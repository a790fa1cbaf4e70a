"""Graph datasets, HDF5 shards and fast readers for k-MIP graph transformers.

Public names are imported lazily (PEP 562): ``import kmip_data`` loads neither torch nor h5py.

>>> from kmip_data import S3DIS
>>> dataset = S3DIS(split="train", k=32)  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import sys

import lazy_loader

__version__ = "0.1.0"

_public_name, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [*_names, "__version__"]  # noqa: PLE0604 -- all are strings

if sys.flags.safe_path:  # a child process of a command
    from kmip_data.runtime.current_folder import ignore_current_folder

    ignore_current_folder()

#: Class of PyTorch Geometric or OGB -> its counterpart here.
_COUNTERPARTS = {
    "WebKB": "GeomGCN",
    "Actor": "GeomGCN",
    "WikipediaNetwork": "GeomGCN, or HeterophilousGraphDataset('chameleon-filtered')",
    "MoleculeNet": "OGBGMolHIV or OGBGMolPCBA",
    "PygNodePropPredDataset": "OGBNArxiv or OGBNProducts",
    "PygGraphPropPredDataset": "OGBGMolHIV or OGBGMolPCBA",
    "PygPCQM4Mv2Dataset": "PCQM4Mv2",
    "Evaluator": "models.evaluate_predictions",
    "load": "open",
    "load_dataset": "open",
    "Dataset": "open",
    "InMemoryDataset": "open",
    "DataLoader": "GraphLoader",
}


def __getattr__(name: str) -> object:
    if name in _COUNTERPARTS:
        raise ImportError(f"kmip_data has no {name}: use kmip_data.{_COUNTERPARTS[name]}")
    try:
        return _public_name(name)
    except AttributeError as error:
        if name in _names or name.startswith("_"):
            raise
        from kmip_data.text import missing_attribute_message

        # PyTorch Geometric is imported only to answer a mistake.
        if (
            name[0].isupper()
            and name in importlib.import_module("torch_geometric.datasets").__all__
        ):
            raise ImportError(
                f"kmip_data has no {name}: build it with kmip-data build pyg"
                f" --set class=torch_geometric.datasets:{name} --name NAME"
            ) from error
        raise AttributeError(missing_attribute_message(__name__, name, _names)) from error


def __dir__() -> list[str]:
    return sorted(__all__)
