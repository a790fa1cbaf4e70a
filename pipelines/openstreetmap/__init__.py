"""Any city of OpenStreetMap as a long-range benchmark graph of the City-Networks kind."""

from kmip_data.pipelines.openstreetmap.pipeline import OpenStreetMapPipeline

PIPELINE = OpenStreetMapPipeline
