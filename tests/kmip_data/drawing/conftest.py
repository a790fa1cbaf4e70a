"""A generated city, and Helsinki, as builds."""

from __future__ import annotations

import pytest

from kmip_data.builds.home import Build, Home
from kmip_data.drawing.maps import CityMap, read_city_map
from kmip_data.pipelines.build import build_dataset

OPTIONS = {"jobs": 1, "quiet": True}


@pytest.fixture(scope="session")
def build(tmp_path_factory) -> Build:
    """Helsinki, 2,526 intersections, with two splits."""
    home = Home(tmp_path_factory.mktemp("home"))
    build_dataset("helsinki", home=home, offline=True, **OPTIONS)
    split = {"split_rule": "spatial", "block_size": 150.0}
    return build_dataset("helsinki", split_parameters=split, home=home, offline=True, **OPTIONS)


@pytest.fixture(scope="session")
def city(build) -> CityMap:
    """The same as a map."""
    return read_city_map(build)
