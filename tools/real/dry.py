"""Local servers with generated samples, for a dry run of ``make real``."""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.attacks.http_server import File, Server, page, running

from kmip_data import manifest as manifests
from kmip_data.manifest import Content, Manifest, load_manifest

#: An archive of pictures, and molecules in two files.
NAMES = ("pascalvoc-sp", "peptides-struct")


@contextlib.contextmanager
def served(
    names: Sequence[str], folder: Path, *, dead: Sequence[str] = (), published: bool = False
) -> Iterator[Any]:
    """Patch the manifests of ``names`` with two local mirrors per source, which serve samples.

    The second mirror of a dataset in ``dead`` sends a web page. Published counts, which a sample does
    not have, are kept only if ``published``.
    """
    shipped = manifests.read_shipped
    changed: dict[str, dict[str, Any]] = {}
    with running(Server()) as server:
        for name in names:
            values = _changed(load_manifest(name), server, folder / name, dead=name in dead)
            if not published:
                values["expected"] = {}
            changed[name] = values

        def read(folder: str, name: str) -> dict[str, Any]:
            dataset = folder.removeprefix("datasets/")
            if name == "dataset" and dataset in changed:
                return dict(changed[dataset])
            return shipped(folder, name)

        manifests.read_shipped = read
        load_manifest.cache_clear()
        try:
            yield server
        finally:
            manifests.read_shipped = shipped
            load_manifest.cache_clear()


def _changed(manifest: Manifest, server: Any, folder: Path, *, dead: bool) -> dict[str, Any]:
    """Return the values of a manifest whose mirrors on ``server`` serve a generated sample."""
    from kmip_data.pipelines.base import load_pipeline

    folder.mkdir(parents=True, exist_ok=True)
    load_pipeline(manifest).write_sample(folder, limit=None, seed=0)
    values = manifest.model_dump(exclude={"file"})
    if any(source.content for source in manifest.sources):
        del values["content"]  # joined from the sources
    else:
        values["content"] |= {"known_sha256": {}, "known_md5": {}}
    for source, text in zip(manifest.sources, values["sources"], strict=True):
        data = _packed(folder, source.content or manifest.content, source.container == "file")
        facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        addresses = [
            server.route(f"/{manifest.name}/{i}/{source.name}", File(data)) for i in (1, 2)
        ]
        if dead:
            server.route(f"/{manifest.name}/2/{source.name}", page())
        text["mirrors"] = [{"url": address, **facts} for address in addresses]
        if text["content"]:
            text["content"] |= {"known_sha256": {}, "known_md5": {}}
    return values


def _packed(folder: Path, content: Content, alone: bool) -> bytes:
    """Return the members of a source as a mirror sends them: one file, or a zip of all."""
    from kmip_data.pipelines.raw.extract import recognise_dataset

    selection = recognise_dataset(folder, content)
    paths = {name: folder / selection.root / name for name in selection.members}
    if alone:
        [path] = paths.values()
        return path.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in paths.items():
            archive.write(path, f"data/{name}")
    return packed.getvalue()
