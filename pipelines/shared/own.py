"""What datasets of one's own files have alike: classes that are named, files that are skipped, a split."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.format.record import Skipped
from kmip_data.pipelines.base import Options, Params, Pipeline, RawFolder
from kmip_data.pipelines.raw.copies import RawCopy
from kmip_data.pipelines.raw.own_files import copy_in
from kmip_data.pipelines.splits.own import OwnSplitParams


class OwnParams(Params):
    """Parameters of datasets of one's own files."""

    class_name: tuple[str, ...] = Field(default=(), description="name of each class, in order; repeat")
    on_error: Literal["stop", "skip"] = Field(
        default="stop", description="a file that cannot be used: stop, or skip it and list it on the card"
    )


P = TypeVar("P", bound=OwnParams)


class OwnPipeline(Pipeline[P, OwnSplitParams]):
    """A dataset of one's own files, under a name of one's own."""

    SplitParams: ClassVar[type[OwnSplitParams]] = OwnSplitParams
    Source: ClassVar[type[Options]]  #: what it is built from: the fields are options of ``build``

    def bring(
        self, source: Any, params: P, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy the files into the home folder; return the copy and whether it is new."""
        return copy_in(self.manifest.name, source.files(), source.origin, home, quiet=quiet)

    def resolve(self, params: P, raw: RawFolder) -> P:
        """Return the parameters with what is read from the files where it was not given: nothing."""
        return params

    def class_names(self, params: P) -> tuple[str, ...]:
        """Those that were given."""
        return params.class_name

    def stop_or_skip(self, key: str, error: DamagedInput, params: P) -> Skipped:
        """Return that a file is left out, or raise its error, as ``params`` ask for."""
        if params.on_error == "skip":
            found = error.parts["found"]
            return Skipped(key, f"{error.what}{f' ({found})' if found else ''}")
        manifest = self.manifest
        error.parts["next"] = error.parts["next"] or (
            "mend or remove the file, or skip it: "
            f"kmip-data build {manifest.file} --name {manifest.name} --on-error skip …"
        )
        raise error
