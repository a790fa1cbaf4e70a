"""Nominatim and Overpass on this machine, answering from an extract: what OSMnx asks for by itself."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import osmium
import osmnx
import shapely

from kmip_data.pipelines.openstreetmap.streets import is_street

STATUS = "Connected as: 1\nCurrent time: 2026-01-01T00:00:00Z\nAnnounced endpoint: none\nRate limit: 2\n"
STATUS += "2 slots available now.\n"
COPYRIGHT = (
    "The data included in this document is from www.openstreetmap.org. It is made available under ODbL."
)


class _Handler(BaseHTTPRequestHandler):
    server: Servers

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/api/status":
            self._send(200, "text/plain", STATUS.encode())
            return
        self.server.searched.append(urllib.parse.parse_qs(url.query)["q"][0])
        self._answer("search", self.server.places)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        query = urllib.parse.parse_qs(body)["data"][0]
        self.server.queries.append(query)
        kind = "land use" if "landuse" in query else "streets"
        elements = self.server.land_use() if kind == "land use" else self.server.streets(query)
        self._answer(kind, {"version": 0.6, "generator": "Overpass API", "osm3s": {}, "elements": elements})

    def _answer(self, kind: str, usual: Any) -> None:
        status, content = self.server.instead.get(kind, (200, usual))
        if isinstance(content, dict):
            content = {**usual, **content} if isinstance(usual, dict) else content
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self._send(status, "text/html" if isinstance(content, str) else "application/json", data)

    def _send(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


class Servers(ThreadingHTTPServer):
    """Both servers, what they were asked, and what they answer instead of the truth.

    Attributes
    ----------
    instead
        ``search``, ``streets`` or ``land use`` -> status and answer: text, or JSON (a dict is laid over
        the true one).
    """

    daemon_threads = True

    def __init__(self, extract: Path, outline: shapely.Geometry) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._extract = extract
        self.searched: list[str] = []
        self.queries: list[str] = []
        self.instead: dict[str, tuple[int, Any]] = {}
        west, south, east, north = outline.bounds
        self.places = [
            {
                "place_id": 1,
                "licence": COPYRIGHT,
                "osm_type": "relation",
                "osm_id": 34914,
                "lat": str(outline.centroid.y),
                "lon": str(outline.centroid.x),
                "class": "boundary",
                "type": "administrative",
                "place_rank": 16,
                "importance": 0.7,
                "addresstype": "suburb",
                "name": "Here",
                "display_name": "Here, There",
                "boundingbox": [str(south), str(north), str(west), str(east)],
                "geojson": json.loads(shapely.to_geojson(outline)),
            }
        ]

    def streets(self, query: str) -> list[dict[str, Any]]:
        """Ways that a query of streets selects, and their nodes, as far as the extract has them."""
        out = {key: set(values.split("|")) for key, values in re.findall(r'\["([^"]+)"!~"([^"]+)"\]', query)}
        ways = [
            way
            for way in self._elements("way")
            if is_street(way["tags"], "any")
            and not any(value in way["tags"].get(key, "") for key, values in out.items() for value in values)
        ]
        return self._with_nodes(ways)

    def land_use(self) -> list[dict[str, Any]]:
        """Areas of land use, and what they are made of."""
        whole = [relation for relation in self._elements("relation") if "landuse" in relation["tags"]]
        members = {m["ref"] for relation in whole for m in relation["members"] if m["type"] == "way"}
        ways = [way for way in self._elements("way") if "landuse" in way["tags"] or way["id"] in members]
        return [*self._with_nodes(ways), *whole]

    def _with_nodes(self, ways: list[dict[str, Any]]) -> list[dict[str, Any]]:
        nodes = {node["id"]: node for node in self._elements("node")}
        # An extract is cut at its border; the real servers have all nodes of a way.
        whole = [way for way in ways if all(ref in nodes for ref in way["nodes"])]
        return [*(nodes[ref] for ref in sorted({ref for way in whole for ref in way["nodes"]})), *whole]

    def _elements(self, kind: str) -> Iterator[dict[str, Any]]:
        kinds = {"n": "node", "w": "way", "r": "relation"}
        for element in osmium.FileProcessor(str(self._extract)):
            if kinds[element.type_str()] != kind:
                continue
            found: dict[str, Any] = {"type": kind, "id": element.id, "tags": dict(element.tags)}
            if kind == "node":
                found |= {"lat": element.lat, "lon": element.lon}
            elif kind == "way":
                found["nodes"] = [node.ref for node in element.nodes]
            else:
                found["members"] = [
                    {"type": kinds[m.type], "ref": m.ref, "role": m.role} for m in element.members
                ]
            yield found


@contextlib.contextmanager
def osm_servers(extract: Path, outline: shapely.Geometry) -> Iterator[Servers]:
    """Run both, and let OSMnx ask them by its own public settings."""
    settings, lookup = osmnx.settings, socket.getaddrinfo
    before = settings.overpass_url, settings.nominatim_url, settings.use_cache
    with Servers(extract, outline) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        here = f"http://127.0.0.1:{server.server_port}"
        settings.overpass_url, settings.nominatim_url, settings.use_cache = f"{here}/api", here, False
        try:
            yield server
        finally:
            settings.overpass_url, settings.nominatim_url, settings.use_cache = before
            socket.getaddrinfo = lookup  # OSMnx puts one of its own there
            server.shutdown()
            thread.join()
