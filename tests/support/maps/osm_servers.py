"""Nominatim and Overpass on this machine, answering from an extract: what OSMnx asks for by itself."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import osmnx
import shapely
from support.attacks.http_server import Handler, Server, running
from support.maps.osm_maps import Elements, elements_of

from kmip_data.pipelines.datasets.openstreetmap.streets import is_street

STATUS = (
    "Connected as: 1\nCurrent time: 2026-01-01T00:00:00Z\nAnnounced endpoint: none\nRate limit: 2\n"
)


class Servers(Server):
    """Both servers.

    ``instead`` has answers that replace the usual ones: (status, content) by question.
    """

    def __init__(self, extract: Path, outline: shapely.Geometry) -> None:
        super().__init__()
        self._extract = extract
        self.searched: list[str] = []
        self.queries: list[str] = []
        self.instead: dict[str, tuple[int, Any]] = {}
        west, south, east, north = outline.bounds
        self.places = [
            dict.fromkeys(
                ("class", "type", "addresstype", "name", "display_name", "licence"), "Here"
            )
            | {
                "place_id": 1,
                "osm_type": "relation",
                "osm_id": 34914,
                "importance": 0.7,
                "place_rank": 16,
            }
            | {"lat": str(outline.centroid.y), "lon": str(outline.centroid.x)}
            | {"boundingbox": [str(south), str(north), str(west), str(east)]}
            | {"geojson": json.loads(shapely.to_geojson(outline))}
        ]

    def answer(self, handler: Handler) -> None:
        url = urllib.parse.urlsplit(handler.path)
        usual: Any
        if url.path == "/api/status":
            kind, usual = "status", f"{STATUS}2 slots available now.\n"
        elif handler.command == "GET":
            self.searched.append(urllib.parse.parse_qs(url.query)["q"][0])
            kind, usual = "search", self.places
        else:
            body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
            query = urllib.parse.parse_qs(body)["data"][0]
            self.queries.append(query)
            kind = "land use" if "landuse" in query else "streets"
            elements = self.land_use() if kind == "land use" else self.streets(query)
            usual = {"version": 0.6, "generator": "Overpass API", "osm3s": {}, "elements": elements}
        status, content = self.instead.get(kind, (200, usual))
        if isinstance(content, dict):
            content = usual | content
        text = (content if isinstance(content, str) else json.dumps(content)).encode()
        media = "text/html" if isinstance(content, str) else "application/json"
        handler.head(status, len(text), Content_Type=media)
        handler.body(text)

    def streets(self, query: str) -> Elements:
        """Ways that a query of streets selects, and their nodes, as far as the extract has them.

        Of ways without a node in the box around the polygon OSMnx would keep nothing.
        """
        corners = [float(number) for number in re.search(r"poly:['\"]([^'\"]+)", query)[1].split()]
        lat, lon = corners[::2], corners[1::2]
        near = {
            node["id"]
            for node in elements_of(self._extract)["n"]
            if min(lat) <= node["lat"] <= max(lat) and min(lon) <= node["lon"] <= max(lon)
        }
        rules = re.findall(r'\["([^"]+)"!~"([^"]+)"\]', query)
        out = [(key, value) for key, values in rules for value in values.split("|")]
        return self._with_nodes(
            way
            for way in elements_of(self._extract)["w"]
            if is_street(way["tags"], "any")
            and not near.isdisjoint(way["nodes"])
            and not any(value in way["tags"].get(key, "") for key, value in out)
        )

    def land_use(self) -> Elements:
        """Areas of land use, and what they are made of."""
        elements = elements_of(self._extract)
        whole = [relation for relation in elements["r"] if "landuse" in relation["tags"]]
        members = {
            m["ref"] for relation in whole for m in relation["members"] if m["type"] == "way"
        }
        ways = (way for way in elements["w"] if "landuse" in way["tags"] or way["id"] in members)
        return [*self._with_nodes(ways), *whole]

    def _with_nodes(self, ways: Iterable[dict[str, Any]]) -> Elements:
        nodes = {node["id"]: node for node in elements_of(self._extract)["n"]}
        # An extract is cut at its border; the real servers have all nodes of a way.
        whole = [way for way in ways if all(ref in nodes for ref in way["nodes"])]
        return [
            *(nodes[ref] for ref in sorted({ref for way in whole for ref in way["nodes"]})),
            *whole,
        ]


@contextlib.contextmanager
def osm_servers(extract: Path, outline: shapely.Geometry) -> Iterator[Servers]:
    """Run both, and let OSMnx ask them by its own public settings, without its pauses before each search."""
    settings, lookup = osmnx.settings, socket.getaddrinfo
    before = settings.overpass_url, settings.nominatim_url, settings.use_cache
    with running(Servers(extract, outline)) as server, mock.patch("osmnx._nominatim.time"):
        here = f"http://127.0.0.1:{server.server_port}"
        settings.overpass_url, settings.nominatim_url, settings.use_cache = (
            f"{here}/api",
            here,
            False,
        )
        try:
            yield server
        finally:
            settings.overpass_url, settings.nominatim_url, settings.use_cache = before
            socket.getaddrinfo = lookup  # OSMnx puts one of its own there
