"""Public dataset classes by family, and their transforms."""


def __getattr__(name: str) -> object:
    import kmip_data

    if name in dir(kmip_data):
        raise ImportError(f"Public classes are in the package: from kmip_data import {name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
