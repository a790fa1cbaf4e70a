"""Generated raw data: a miniature in the upstream layout, kept and used again like a download."""

from __future__ import annotations

from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.errors import writing
from kmip_data.pipelines.archives.extract import write_members
from kmip_data.pipelines.archives.folder import FolderArchive
from kmip_data.pipelines.base import Pipeline
from kmip_data.pipelines.raw.copies import RawCopy, list_copies, local_source, locked, staging, store
from kmip_data.pipelines.raw.recognition import recognise

SAMPLE_SEED = 0
MOST = 1_000_000  #: records of the largest sample


def obtain_sample(home: Home, pipeline: Pipeline[Any, Any], limit: int | None, *, quiet: bool) -> RawCopy:
    """Return a generated miniature; the same one when it was generated before.

    Raises ``UsageError`` where so many records are not a miniature, and would fill the disk before anything
    is built.
    """
    if limit is not None and limit > MOST:
        raise UsageError(
            "A sample is a miniature.",
            expected=f"--limit of at most {MOST:,} generated records",
            found=f"{limit:,}",
            next=f"kmip-data build {pipeline.manifest.name} --sample --limit 100",
        )
    manifest = pipeline.manifest
    made = {"limit": limit, "seed": SAMPLE_SEED, "pipeline_version": pipeline.version}
    folder = home.raw / f"{manifest.name}-sample"

    def existing() -> RawCopy | None:
        return next((c for c in list_copies(folder) if c.receipt.sample == made and not c.problems()), None)

    if copy := existing():
        return copy
    with locked(folder, quiet=quiet):
        if copy := existing():
            return copy
        with staging(folder) as stage:
            generated = stage / "generated"
            with writing(generated):
                generated.mkdir()
                pipeline.sample(generated, limit=limit, seed=SAMPLE_SEED)
            plan = recognise(FolderArchive(generated), manifest.content)
            members = write_members(plan, stage / "0")
            made_here = local_source(folder.name, "generated sample", members, plan.bytes)
            return store(folder, stage / "0", members, [made_here], dataset=manifest.name, sample=made)
