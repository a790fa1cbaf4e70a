"""Croissant metadata of a build, including responsible AI fields, from its card and manifest."""

from __future__ import annotations

import re
import time
import unicodedata
from typing import Any

from kmip_data.format.card import Card
from kmip_data.manifest import Manifest, ResponsibleAI, dataset_names, load_manifest
from kmip_data.strict_model import read_shipped
from kmip_data.text import format_parameters

#: LaTeX accent -> combining character
_ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308", "^": "\u0302", "v": "\u030c"}


def build_croissant(card: Card) -> dict[str, Any]:
    """Return the metadata of a build, with file names relative to the build folder.

    There are no record sets, because Croissant cannot extract fields from HDF5. The metadata depend
    only on the card and its manifest, and on today's date if the manifest has no date of publication.
    Unknown fields are left out.
    """
    # A dataset saved in Python has no manifest.
    manifest = load_manifest(card.manifest) if card.manifest in dataset_names() else None
    constants = read_shipped("tables", "croissant")
    rai = ResponsibleAI() if manifest is None else manifest.responsible
    synthetic = None if manifest is None else manifest.synthetic
    if card.sample:
        rai = ResponsibleAI(**constants["generated"])
        synthetic = True
    optional_fields = {
        "creator": citation_authors(card.citation),
        **{name: getattr(rai, field) for name, field in constants["responsible"].items()},
        "prov:wasDerivedFrom": _source_objects(card, manifest),
        "prov:wasGeneratedBy": _collection_and_conversion(card, rai),
    }
    fields = {
        "name": card.dataset,
        "description": card.heading + (f". {manifest.summary}" if manifest else ""),
        "license": str(card.license.get("url") or card.license.get("name") or "Not stated."),
        "citeAs": card.citation.strip() or card.title or card.dataset,
        "url": manifest.homepage if manifest else None,
        "version": f"{card.pipeline_version}.0.0",
        "datePublished": (manifest.published if manifest else "")
        or time.strftime("%Y-%m-%d", time.gmtime()),
        **{name: value for name, value in optional_fields.items() if value},
        "rai:hasSyntheticData": synthetic,
    }
    return {
        "@context": constants["context"],
        **constants["dataset"],
        **{name: value for name, value in fields.items() if value is not None},
        "distribution": _file_objects(card),
    }


def citation_authors(citation: str) -> list[dict[str, str]]:
    """Return the authors of the first BibTeX entry; a name in braces is an organisation."""
    authors = re.search(r"\bauthor\s*=\s*\{(.*)\},?\s*$", citation, re.MULTILINE)
    if authors is None:
        return []
    text = re.sub(r"\{?\\(['`\"^v])\{?(\w)\}{1,2}", _accented_letter, authors[1])
    names = []
    for author in text.split(" and "):
        schema_type = "sc:Organization" if author.startswith("{") else "sc:Person"
        last, _, first = author.strip("{} ").partition(", ")
        names.append({"@type": schema_type, "name": f"{first} {last}".strip()})
    return names


def _accented_letter(letter: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", letter[2] + _ACCENTS[letter[1]])


def _source_objects(card: Card, manifest: Manifest | None) -> list[dict[str, str]]:
    """Return the homepage of a published dataset, and the raw files."""
    sources = []
    if manifest is not None and not (manifest.recipe or card.sample):
        sources.append({"@type": "prov:Entity", "@id": manifest.homepage})
    for receipt in card.receipts:
        label = f"{receipt.name} from {receipt.origin}, SHA-256 {receipt.sha256}"
        sources.append({"@type": "prov:Entity", "prov:label": label})
    return sources


def _collection_and_conversion(card: Card, rai: ResponsibleAI) -> list[dict[str, str]]:
    """Return the collection of the data, if known, and their conversion to this build."""
    version = card.versions.get("kmip-data", "")
    parameters = format_parameters(card.parameters)
    conversion = f"kmip-data {version}".strip()
    if card.pipeline:
        conversion += f", pipeline {card.pipeline} {card.pipeline_version}"
    if parameters:
        conversion += f": {parameters}"
    steps = [("collection", rai.collection), ("conversion", conversion)]
    return [
        {"@type": "prov:Activity", "prov:label": label, "description": text}
        for label, text in steps
        if text
    ]


def _file_objects(card: Card) -> list[dict[str, str]]:
    files = []
    shards = card.files
    # Sort by name: a card read from a file has lost the order of its splits.
    for file, sha256 in sorted(card.digests.items()):
        entry = {
            "@type": "cr:FileObject",
            "encodingFormat": "application/x-hdf5",
            "@id": file,
            "name": file,
            "contentUrl": file,
            "sha256": sha256,
        }
        if file in shards:
            entry["contentSize"] = f"{shards[file].bytes} B"
        files.append(entry)
    return files
