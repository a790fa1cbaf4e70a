"""Build a city under a name of its own: ``kmip-data build city --name NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.disk import left_in
from kmip_data.format.writer import Compression
from kmip_data.manifest import load_manifest, named
from kmip_data.pipelines.build import build_folder_name, build_key, build_raw, check_params, ensure_split
from kmip_data.pipelines.engine import signals
from kmip_data.pipelines.engine.executors import EngineName, check_engine
from kmip_data.pipelines.openstreetmap.city_source import CitySource, check_source
from kmip_data.pipelines.openstreetmap.pipeline import OpenStreetMapPipeline
from kmip_data.pipelines.openstreetmap.sources import obtain_city
from kmip_data.pipelines.parameters import check_sample
from kmip_data.pipelines.raw.copies import discard, remove_copy
from kmip_data.pipelines.raw.license import show_license
from kmip_data.pipelines.recipes import check_name


def build_city(
    name: str,
    source: CitySource,
    *,
    parameters: Mapping[str, Any] | None = None,
    split_parameters: Mapping[str, Any] | None = None,
    home: Home | None = None,
    offline: bool = False,
    jobs: int | None = None,
    output: Path | None = None,
    compression: Compression = None,
    engine: EngineName = "processes",
    scheduler: str | None = None,
    quiet: bool = False,
) -> Build:
    """Return the finished build of a city, building it where it is missing.

    Parameters
    ----------
    name
        Name of the dataset that is built; other commands and :func:`kmip_data.open` know it by that.
    source
        What it is built from.
    parameters, split_parameters, home, offline, jobs, output, compression, engine, scheduler, quiet
        See :func:`kmip_data.pipelines.build.build_dataset`.

    Raises
    ------
    UsageError
        The name is taken or no name, there is not exactly one source, or an option is wrong.
    SourceUnavailable, DamagedInput, OutOfResources
        The source could not be had, cannot be built from, or the disk is full: nothing new is left.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kmip_data.pipelines.openstreetmap.city import CitySource, build_city
    >>> build = build_city("marais", CitySource(osm_file=Path("paris.osm.pbf")))  # doctest: +SKIP
    """
    check_name(name, "city")
    manifest = named(load_manifest("city"), name)
    pipeline = OpenStreetMapPipeline(manifest)
    params = check_params(pipeline.Params, parameters or {}, "city")
    check_sample(params, "city", sample=False)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, "city")
    check_source(source, parameters or {})
    check_engine(engine, scheduler)
    home = home or Home.locate()
    if not quiet:
        show_license(manifest)
    with signals.terminable():
        copy, new = obtain_city(
            manifest, source, home, network_type=params.network_type, offline=offline, quiet=quiet
        )
        try:
            build = build_raw(
                pipeline,
                params,
                split_params,
                copy.raw_folder(),
                home=home,
                jobs=jobs,
                output=output,
                compression=compression,
                engine=engine,
                scheduler=scheduler,
                quiet=quiet,
            )
        except (DamagedInput, UsageError) as error:
            if new:
                key = build_key(pipeline, params, copy.raw_folder(), compression)
                own = home.built / build_folder_name(pipeline, params, key, compression=compression)
                folder = own if output is None else Path(output).expanduser()
                # What cannot be built from must not stay as if it could.
                remove_copy(copy.raw_folder())
                discard(home.raw / name)
                error.parts["on disk"] = f"unfinished: {folder}" if folder.exists() else left_in(copy.path)
            raise
        ensure_split(build, split_params.model_dump(), quiet=quiet)
    return build


def source_of(values: Mapping[str, Any]) -> CitySource:
    """Return a checked source from plain values, as a command line has them."""
    return check_params(CitySource, values, "city")
