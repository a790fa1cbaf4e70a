"""Means and standard deviations that the paper's code standardises superpixel features with.

Source: ``graphgps/encoder/voc_superpixels_encoder.py`` of the LRGB repository. Node columns: mean,
standard deviation, maximum and minimum of red, green, blue, then the centroid (y, x) in pixels; edge
columns: mean colour distance along the boundary, its length.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Of each column."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


VOC_NODE = Constants(
    mean=(
        *(0.45824501, 0.43857411, 0.40561178, 0.067938097, 0.065604292, 0.065742709),
        *(0.65212941, 0.62894762, 0.60173863, 0.27769071, 0.26425251, 0.23729359),
        *(193.44997, 234.72206),
    ),
    std=(
        *(0.25952947, 0.25716761, 0.27130592, 0.054822665, 0.05442927, 0.054474957),
        *(0.26238337, 0.2660054, 0.2775068, 0.25197381, 0.24986187, 0.26069802),
        *(117.68297, 140.07195),
    ),
)
COCO_NODE = Constants(
    mean=(
        *(0.46977347, 0.44679317, 0.40790915, 0.070808627, 0.068686441, 0.068498217),
        *(0.67777938, 0.65244222, 0.62096798, 0.27554795, 0.25910738, 0.22901227),
        *(242.61935, 289.85367),
    ),
    std=(
        *(0.26218116, 0.25831082, 0.27416739, 0.057440419, 0.056832556, 0.057100497),
        *(0.25929087, 0.26201612, 0.27675411, 0.25456995, 0.2514092, 0.2618233),
        *(151.52475, 176.30779),
    ),
)
VOC_EDGE = Constants(mean=(0.07640745, 33.73478), std=(0.0868775, 20.945076))
COCO_EDGE = Constants(mean=(0.07848548, 43.68736), std=(0.08902349, 28.473562))
